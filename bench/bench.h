/* ofload-bench: one function a subcommand (argv[0] is its name), and the table they all print. */
#ifndef OFLOAD_BENCH_H
#define OFLOAD_BENCH_H

#include <ofload/ofload.h>

#include "common/cli.h"

int bench_link(int argc, char **argv);
int bench_stream(int argc, char **argv);  /* bench_stream.c */
int bench_designs(int argc, char **argv); /* the same */
int bench_plan(int argc, char **argv);
int bench_front(int argc, char **argv);
int bench_replay(int argc, char **argv);
int bench_units(int argc, char **argv);
int bench_load(int argc, char **argv);
int bench_accuracy(int argc, char **argv);
int bench_compare(int argc, char **argv);
int bench_mkmodel(int argc, char **argv);

enum { EXIT_SKIPPED = 77 }; /* what the benchmark needs is not installed */

/* How the rows are printed; every subcommand takes both options. */
typedef struct bench_output { int json, quiet; } bench_output;
#define BENCH_OUTPUT_OPTIONS(output)                                                                                  \
    {"--json", CLI_FLAG, &(output).json, NULL, NULL, NULL, "print as JSON"},                                          \
    {"--quiet", CLI_FLAG, &(output).quiet, NULL, NULL, NULL, "the rows alone, without the line above that says where they were measured"}

/* cli_parse for a subcommand, which takes options alone. */
ofl_status bench_parse(const cli_program *program, int argc, char **argv, int *exit_out);
/* A count or size that was given below `least`. */
ofl_status bench_check_least(const char *option, int given, uint64_t value, uint64_t least);
/* Of a clock that only goes forward. */
double bench_seconds(void);
/* Sorts the values. Of an even number the mean of the two in the middle; of none 0. */
double bench_median(double *values, size_t count);
/* Numbers that are the same on every machine; any state to begin with. */
uint64_t bench_random(uint64_t *state);

/* A row of numbers under names; a table for people, or {"schema":"ofload.bench/1",…} with --json. */
typedef struct bench_report bench_report;
/* device may be NULL: nothing was run on one, or on one a row (bench_report_simulated). */
ofl_status bench_report_open(const char *name, const ofl_device *device, bench_output output, bench_report **out);
/* Says that the rows are of simulated devices, opened and closed for each: what such a device is, and whether its clock is the virtual one. */
void bench_report_simulated(bench_report *report, const char *device, int virtual_clock);
void bench_report_row(bench_report *report, const char *label);
void bench_report_number(bench_report *report, const char *key, double value);
void bench_report_text(bench_report *report, const char *key, const char *value);
/* Prints all to standard output, or, where `status` is a failure, only the sentence about it; frees the report, which may be NULL then.
 * An exit status. */
int bench_report_close(bench_report *report, const cli_program *program, ofl_status status);

#endif
