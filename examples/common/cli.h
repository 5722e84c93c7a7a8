/* Options of the programs: one table is the source of parsing, of the check that a doubled or unknown option is refused, and of --help,
 * manual page and completion (cli_pages.h). */
#ifndef OFLOAD_CLI_H
#define OFLOAD_CLI_H

#include <stddef.h>
#include <stdint.h>

#include "common/app_error.h"

/* Exit statuses of all programs. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NO_FIT = 3, EXIT_ERROR_LINES = 4, EXIT_STOPPED = 75, EXIT_INTERRUPTED = 130 };

typedef enum cli_kind {
    CLI_FLAG,    /* int *: set to 1 */
    CLI_TEXT,    /* const char **: borrowed from argv */
    CLI_SIZE,    /* uint64_t *: "12GB" = 12e9, "12GiB", "64MiB", bare bytes; G, M, k alone are refused with both readings named */
    CLI_RATE,    /* double *: "3.26GB/s", bytes per second */
    CLI_FLOPS,   /* double *: "51TFLOP/s" */
    CLI_COUNT,   /* uint64_t *: a whole number */
    CLI_NUMBER,  /* double * */
    CLI_CHOICE,  /* uint32_t *: index in `choices`, a |-separated list that ends in NULL via the string's end */
    CLI_COMMAND, /* no option, but a first word that has a program of its own: only told. value is NULL */
    CLI_WORD     /* no option, but a word that may stand as the argument: only told. value is NULL */
} cli_kind;

typedef struct cli_option {
    const char *name;     /* "--vram" */
    cli_kind kind;
    void *value;
    int *given;           /* set to 1 when present; may be NULL */
    const char *argument; /* "SIZE" in the help; NULL for a flag */
    const char *choices;  /* CLI_CHOICE: "f16|bf16|f32" */
    const char *help;     /* one line */
} cli_option;

typedef struct cli_program {
    const char *name;      /* "ofload-plan" */
    const char *usage;     /* "[options] MODEL" */
    const char *summary;   /* a paragraph */
    const char *epilogue;  /* after the options; may be NULL */
    const cli_option *options;
    size_t option_count;
} cli_program;

/* Parses. --help, --version and what else cli_answer knows are handled: *exit_out = EXIT_DONE and a return of OFL_END. Both "--name value" and "--name=value"; "--" ends options.
 * Positional arguments are moved to argv[1…]; *argc is their number and 1. A mistake: OFL_ERROR_ARGUMENT with the sentence in app_error(), exit status EXIT_USAGE. */
ofl_status cli_parse(const cli_program *program, int *argc, char **argv, int *exit_out);
/* After cli_parse: the first option given that `with` (ends in NULL) does not name, or NULL. An option of a number counts as given where it
 * has no `given` and is not 0. */
const char *cli_given_beside(const cli_program *program, const char *const *with);
/* "ofload-plan: SENTENCE" on stderr; returns the exit status that belongs to `status` (3 for OFL_ERROR_NO_FIT, 2 for OFL_ERROR_ARGUMENT,
 * else 1). */
int cli_complain(const cli_program *program, ofl_status status);

ofl_status cli_parse_size(const char *text, uint64_t *bytes_out);
ofl_status cli_parse_rate(const char *text, double *bytes_per_second_out);
ofl_status cli_parse_flops(const char *text, double *out);
ofl_status cli_parse_count(const char *text, uint64_t *out);
ofl_status cli_parse_number(const char *text, double *out);

/* For people: "10.66 GB", "64.0 MiB" (binary = 1), "3.26 GB/s", "1.07 s", "56.2 ms", "4.2 days", "475 years".
 * buffer of at least 32; returned. */
char *cli_show_bytes(char *buffer, uint64_t bytes, int binary);
char *cli_show_rate(char *buffer, double bytes_per_second);
char *cli_show_seconds(char *buffer, double seconds);
char *cli_show_count(char *buffer, uint64_t count); /* "1,650" */
/* Tokens a second, three significant digits: "0.466", "1.00", "24.9"; whole from 100 on, "1,650". */
char *cli_show_tokens(char *buffer, double tokens_per_second);

#endif
