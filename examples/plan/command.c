/* The command that shows a way's own plan: the one that was given, with an option more or less. */
#include <stdlib.h>
#include <string.h>

#include "common/plan_options.h"
#include "plan/ways.h"

/* Text that grows; bytes NULL: out of memory. */
typedef struct line {
    char *text;
    size_t used, room;
} line;

static void put(line *l, const char *bytes, size_t count)
{
    if (l->text != NULL && l->used + count + 1 > l->room) {
        char *more = realloc(l->text, l->room = 2 * (l->used + count + 1));
        if (more == NULL) free(l->text);
        l->text = more;
    }
    if (l->text == NULL) return;
    memcpy(l->text + l->used, bytes, count);
    l->used += count;
    l->text[l->used] = '\0';
}

/* A word for a shell, quoted where it must be. */
static void put_word(line *l, const char *word)
{
    put(l, " ", 1);
    if (*word != '\0' && strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:=,%+@") == strlen(word)) {
        put(l, word, strlen(word));
        return;
    }
    put(l, "'", 1);
    for (; *word != '\0'; word++) put(l, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
    put(l, "'", 1);
}

static const cli_option *option_of(const compare_options *o, const char *word, size_t *index)
{
    size_t length = strcspn(word, "=");
    for (*index = 0; *index < o->option_count; ++*index) {
        const cli_option *option = &o->options[*index];
        if (strlen(option->name) == length && memcmp(option->name, word, length) == 0) return option;
    }
    return NULL;
}

static bool is(const char *name, const char *other) { return other != NULL && strcmp(name, other) == 0; }

char *command_with(const compare_options *o, const char *name, const char *value, const char *dropped, const char *too)
{
    line l = {.text = malloc(128), .room = 128};
    bool ended = false;
    put(&l, "ofload-plan", 11);
    if (name != NULL) put_word(&l, name);
    if (name != NULL) put_word(&l, value);
    for (int i = 1; i < o->argc; i++) {
        size_t index = 0;
        const char *word = o->argv[i];
        const cli_option *option = ended ? NULL : option_of(o, word, &index);
        if (option == NULL) {
            put_word(&l, word);
            ended |= strcmp(word, "--") == 0;
            continue;
        }
        bool split = option->kind != CLI_FLAG && strchr(word, '=') == NULL && i + 1 < o->argc;
        if (index < PLAN_OPTION_COUNT && !is(option->name, name) && !is(option->name, dropped) && !is(option->name, too)) {
            put_word(&l, word);
            if (split) put_word(&l, o->argv[i + 1]);
        }
        i += split;
    }
    return l.text;
}
