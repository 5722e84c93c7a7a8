/* What a program's table says: its help, its manual page, and the words for a shell's completion. */
#include "common/cli_pages.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/show.h"

#define HELP_COLUMN 30

static const cli_option built_in[] = {{"--help", CLI_FLAG, NULL, NULL, NULL, NULL, "this text"},
                                      {"--version", CLI_FLAG, NULL, NULL, NULL, NULL, "the version"}};
#define BUILT_IN_COUNT (sizeof built_in / sizeof built_in[0])

static size_t row_count(const cli_program *program) { return program->option_count + BUILT_IN_COUNT; }

static const cli_option *row_at(const cli_program *program, size_t i)
{
    return i < program->option_count ? &program->options[i] : &built_in[i - program->option_count];
}

const char *cli_option_name(const cli_program *program, size_t i) { return i < row_count(program) ? row_at(program, i)->name : NULL; }

typedef enum group { COMMANDS, WORDS, OPTIONS } group;

static group group_of(const cli_option *row) { return row->kind == CLI_COMMAND ? COMMANDS : row->kind == CLI_WORD ? WORDS : OPTIONS; }

/* Each group has a heading of its own. */
static void print_rows(const cli_program *program, const char *heading, group which, void (*print)(const cli_option *row))
{
    bool any = false;
    for (size_t i = 0; i < row_count(program); i++) {
        const cli_option *row = row_at(program, i);
        if (group_of(row) != which) continue;
        if (!any) (void)fputs(heading, stdout);
        any = true;
        print(row);
    }
}

static void print_help_row(const cli_option *row)
{
    char left[64];
    (void)snprintf(left, sizeof left, "%s%s%s", row->name, row->argument != NULL ? " " : "", row->argument != NULL ? row->argument : "");
    printf("  ");
    show_left(left, HELP_COLUMN);
    if (strlen(left) > HELP_COLUMN) printf("\n  %*s", HELP_COLUMN, "");
    printf("  %s\n", row->help);
}

static void print_help(const cli_program *program)
{
    printf("usage: %s %s\n\n%s\n", program->name, program->usage, program->summary);
    print_rows(program, "\ncommands (each has a --help of its own):\n", COMMANDS, print_help_row);
    print_rows(program, "\none of these:\n", WORDS, print_help_row);
    print_rows(program, "\noptions:\n", OPTIONS, print_help_row);
    if (program->epilogue != NULL) printf("\n%s\n", program->epilogue);
}

/* Text for the page: nothing in it is taken for a request or an escape. `bytes` of it at most. */
static void put_roff(const char *text, size_t bytes)
{
    bool begins = true;
    for (; *text != '\0' && bytes > 0; text++, bytes--) {
        if (begins && (*text == '.' || *text == '\'')) (void)fputs("\\&", stdout);
        if (*text == '-') (void)fputs("\\-", stdout);
        else if (*text == '\\') (void)fputs("\\e", stdout);
        else (void)putchar(*text);
        begins = *text == '\n';
    }
}

static void put_roff_line(const char *text)
{
    put_roff(text, SIZE_MAX);
    (void)putchar('\n');
}

static void print_man_row(const cli_option *row)
{
    printf(".TP\n\\fB");
    put_roff(row->name, SIZE_MAX);
    printf("\\fR");
    if (row->argument != NULL) {
        printf(" \\fI");
        put_roff(row->argument, SIZE_MAX);
        printf("\\fR");
    }
    printf("\n");
    put_roff_line(row->help);
}

/* "ofload-batch merge" as the page is called: "ofload-batch-merge". */
static void put_page_name(const char *name, bool capitals)
{
    for (; *name != '\0'; name++) {
        char c = *name == ' ' ? '-' : capitals ? (char)toupper((unsigned char)*name) : *name;
        put_roff(&c, 1);
    }
}

/* The summary's beginning, up to a full stop or a colon, as a line of an index of pages. */
static void put_purpose(const char *summary)
{
    size_t bytes = 0;
    while (summary[bytes] != '\0' && (strchr(".:", summary[bytes]) == NULL || isgraph((unsigned char)summary[bytes + 1]))) bytes++;
    char first = (char)tolower((unsigned char)summary[0]);
    put_roff(&first, bytes > 0);
    for (size_t i = 1; i < bytes; i++) put_roff(summary[i] == '\n' ? " " : summary + i, 1);
    (void)putchar('\n');
}

/* Lines are filled; one that ends a sentence ends there. */
static void put_notes(const char *text)
{
    while (*text != '\0') {
        size_t bytes = strcspn(text, "\n");
        put_roff(text, bytes);
        (void)putchar('\n');
        if (text[bytes] != '\0' && bytes > 0 && text[bytes - 1] == '.') (void)puts(".br");
        text += bytes + (text[bytes] != '\0');
    }
}

static void print_man(const cli_program *program)
{
    printf(".TH ");
    put_page_name(program->name, true);
    printf(" 1 \"\" \"libofload %s\" \"User Commands\"\n.SH NAME\n", ofl_version());
    put_page_name(program->name, false);
    printf(" \\- ");
    put_purpose(program->summary);
    printf(".SH SYNOPSIS\n\\fB");
    put_roff(program->name, SIZE_MAX);
    printf("\\fR ");
    put_roff_line(program->usage);
    printf(".SH DESCRIPTION\n");
    put_roff_line(program->summary);
    print_rows(program, ".SH COMMANDS\nEach has a page of its own, and a \\fB\\-\\-help\\fR.\n", COMMANDS, print_man_row);
    print_rows(program, ".SH ARGUMENT\nOne of these:\n", WORDS, print_man_row);
    print_rows(program, ".SH OPTIONS\n", OPTIONS, print_man_row);
    if (program->epilogue == NULL) return;
    printf(".SH NOTES\n");
    put_notes(program->epilogue);
}

/* A text that names a file: MODEL, FILE, FOLDER, PLAN.json. */
static bool names_file(const char *argument)
{
    const char *dot = strchr(argument, '.');
    return strcmp(argument, "MODEL") == 0 || strcmp(argument, "FILE") == 0 || strcmp(argument, "FOLDER") == 0 ||
           (dot != NULL && islower((unsigned char)dot[1]));
}

static void print_word(const cli_option *row)
{
    printf("%s", row->name);
    if (row->kind == CLI_COMMAND) printf(" command");
    else if (row->kind == CLI_WORD) printf(" word");
    else if (row->kind == CLI_CHOICE) printf(" %s", row->choices);
    else if (row->kind != CLI_FLAG) printf(" %s", row->kind == CLI_TEXT && names_file(row->argument) ? "file" : "value");
    (void)putchar('\n');
}

static void print_words(const cli_program *program)
{
    for (size_t i = 0; i < row_count(program); i++) print_word(row_at(program, i));
}

bool cli_answer(const cli_program *program, const char *word)
{
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) print_help(program);
    else if (strcmp(word, "--version") == 0) printf("%s %s\n", program->name, ofl_version());
    else if (strcmp(word, "--help-man") == 0) print_man(program);
    else if (strcmp(word, "--help-words") == 0) print_words(program);
    else return false;
    return true;
}
