#include "common/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/cli_pages.h"

#define MAX_OPTIONS 64

/* Edits that turn one name into the other; names are short. */
static size_t distance(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);
    if (n >= 63 || strlen(a) >= 63) return SIZE_MAX;
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t change = corner + (a[i - 1] != b[j - 1]), other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            corner = row[j];
            row[j] = change < other ? change : other;
        }
    }
    return row[n];
}

static ofl_status unknown_option(const cli_program *program, const char *name)
{
    const char *nearest = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; cli_option_name(program, i) != NULL; i++) {
        size_t d = distance(name, cli_option_name(program, i));
        if (d >= least) continue;
        least = d;
        nearest = cli_option_name(program, i);
    }
    if (nearest != NULL && least <= 3 && least < strlen(name) - 2)
        return app_fail(OFL_ERROR_ARGUMENT, "%.60s is no option; did you mean %s?", name, nearest);
    return app_fail(OFL_ERROR_ARGUMENT, "%.60s is no option; %s --help lists them", name, program->name);
}

static const cli_option *find_option(const cli_program *program, const char *name)
{
    for (size_t i = 0; i < program->option_count; i++) {
        if (strcmp(program->options[i].name, name) == 0) return &program->options[i];
    }
    return NULL;
}

static ofl_status read_choice(const char *choices, const char *text, uint32_t *out)
{
    uint32_t index = 0;
    size_t length = strlen(text);
    for (const char *at = choices; *at != '\0'; index++) {
        size_t one = strcspn(at, "|");
        if (one == length && memcmp(at, text, one) == 0) {
            *out = index;
            return OFL_OK;
        }
        at += one + (at[one] == '|');
    }
    return app_fail(OFL_ERROR_ARGUMENT, "\"%.60s\" is none of %s", text, choices);
}

static ofl_status read_value(const cli_option *option, const char *text)
{
    switch (option->kind) {
    case CLI_FLAG: *(int *)option->value = 1; return OFL_OK;
    case CLI_TEXT: *(const char **)option->value = text; return OFL_OK;
    case CLI_SIZE: return cli_parse_size(text, option->value);
    case CLI_RATE: return cli_parse_rate(text, option->value);
    case CLI_FLOPS: return cli_parse_flops(text, option->value);
    case CLI_COUNT: return cli_parse_count(text, option->value);
    case CLI_NUMBER: return cli_parse_number(text, option->value);
    case CLI_CHOICE: return read_choice(option->choices, text, option->value);
    case CLI_COMMAND:
    case CLI_WORD: break;
    }
    return app_fail(OFL_ERROR_INTERNAL, "%s has a kind that is not known", option->name);
}

/* The state of one walk over the arguments. */
typedef struct walk {
    const cli_program *program;
    int argc, at, kept;
    char **argv;
    bool seen[MAX_OPTIONS];
} walk;

/* The value is after "=" or is the next argument; a next argument that looks like an option means that the value was forgotten. */
static ofl_status find_value(walk *w, const cli_option *option, const char *after_equals, const char **out)
{
    *out = after_equals;
    if (option->kind == CLI_FLAG) return after_equals == NULL ? OFL_OK : app_fail(OFL_ERROR_ARGUMENT, "%s takes no value", option->name);
    if (*out == NULL && w->at + 1 < w->argc && strncmp(w->argv[w->at + 1], "--", 2) != 0) *out = w->argv[++w->at];
    if (*out != NULL && **out != '\0') return OFL_OK;
    return app_fail(OFL_ERROR_ARGUMENT, "%s needs a value: %s %s", option->name, option->name, option->argument);
}

static ofl_status take_option(walk *w)
{
    char name[64];
    const char *text = w->argv[w->at], *equals = strchr(text, '='), *value = NULL;
    size_t length = equals != NULL ? (size_t)(equals - text) : strlen(text);
    if (length >= sizeof name) return unknown_option(w->program, "that long name");
    memcpy(name, text, length);
    name[length] = '\0';
    const cli_option *option = find_option(w->program, name);
    if (option == NULL) return unknown_option(w->program, name);
    bool *seen = &w->seen[option - w->program->options];
    if (*seen) return app_fail(OFL_ERROR_ARGUMENT, "%s is given twice; give it once", name);
    *seen = true;
    ofl_status status = find_value(w, option, equals != NULL ? equals + 1 : NULL, &value);
    if (status != OFL_OK) return status;
    status = read_value(option, value);
    if (status != OFL_OK) return app_fail(status, "%s: %s", name, app_error());
    if (option->given != NULL) *option->given = 1;
    return OFL_OK;
}

/* These count wherever they stand before "--", even beside a mistake. */
static bool answered(const cli_program *program, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (cli_answer(program, argv[i])) return true;
    }
    return false;
}

/* A program started with one of them closed would open its files in their place and write messages into them.
 * Writing to what is opened here fails. */
static void fill_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)open("/dev/null", O_RDONLY);
    }
}

ofl_status cli_parse(const cli_program *program, int *argc, char **argv, int *exit_out)
{
    walk w = {.program = program, .argc = *argc, .argv = argv, .at = 1, .kept = 1};
    bool ended = false;
    *exit_out = EXIT_USAGE;
    fill_standard_files();
    if (program->option_count > MAX_OPTIONS) return app_fail(OFL_ERROR_INTERNAL, "%s has more than %d options", program->name, MAX_OPTIONS);
    if (answered(program, *argc, argv)) {
        *exit_out = fflush(stdout) == 0 && !ferror(stdout) ? EXIT_DONE : EXIT_FAILED;
        return OFL_END;
    }
    for (; w.at < w.argc; w.at++) {
        const char *text = argv[w.at];
        if (!ended && strcmp(text, "--") == 0) ended = true;
        else if (ended || text[0] != '-' || text[1] == '\0') argv[w.kept++] = argv[w.at];
        else {
            ofl_status status = take_option(&w);
            if (status != OFL_OK) return status;
        }
    }
    *argc = w.kept;
    argv[w.kept] = NULL;
    *exit_out = EXIT_DONE;
    return OFL_OK;
}

static bool is_given(const cli_option *option)
{
    static const char zero[8];
    if (option->value == NULL) return false; /* a word */
    if (option->given != NULL) return *option->given != 0;
    if (option->kind == CLI_TEXT) return *(const char **)option->value != NULL;
    return memcmp(option->value, zero, option->kind == CLI_FLAG || option->kind == CLI_CHOICE ? 4 : 8) != 0;
}

const char *cli_given_beside(const cli_program *program, const char *const *with)
{
    for (size_t i = 0; i < program->option_count; i++) {
        const char *const *name = with;
        while (*name != NULL && strcmp(*name, program->options[i].name) != 0) name++;
        if (*name == NULL && is_given(&program->options[i])) return program->options[i].name;
    }
    return NULL;
}

int cli_complain(const cli_program *program, ofl_status status)
{
    (void)fflush(stdout);
    (void)fprintf(stderr, "%s: %s\n", program->name, app_error());
    if (status == OFL_ERROR_NO_FIT) return EXIT_NO_FIT;
    return status == OFL_ERROR_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}
