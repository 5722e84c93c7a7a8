/* What a program's table says, by itself: the one source of its help, its manual page and its completion. */
#ifndef OFLOAD_CLI_PAGES_H
#define OFLOAD_CLI_PAGES_H

#include <stdbool.h>

#include "common/cli.h"

/* Prints what `word` asks for, if it is one that every program answers: --help, --version, and two that are not listed: --help-man (the
 * manual page, for man) and --help-words (a line an option, for completion: its name and "file", "value", the choices as a|b, or nothing
 * for a flag; a command's is "command"). */
bool cli_answer(const cli_program *program, const char *word);
/* The i-th name that is known, with --help and --version at the end; NULL beyond. */
const char *cli_option_name(const cli_program *program, size_t i);

#endif
