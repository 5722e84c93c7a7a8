/* What the subcommands share: options, time, medians, numbers drawn. */
#include "bench.h"

#include <stdlib.h>
#include <time.h>

ofl_status bench_parse(const cli_program *program, int argc, char **argv, int *exit_out)
{
    ofl_status status = cli_parse(program, &argc, argv, exit_out);
    return status == OFL_OK && argc > 1 ? app_fail(OFL_ERROR_ARGUMENT, "\"%.60s\" is not expected here", argv[1]) : status;
}

ofl_status bench_check_least(const char *option, int given, uint64_t value, uint64_t least)
{
    if (!given || value >= least) return OFL_OK;
    return app_fail(OFL_ERROR_ARGUMENT, "%s: give at least %llu", option, (unsigned long long)least);
}

double bench_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
    if (count == 0) return 0;
    double upper = values[count / 2];
    return count % 2 == 1 ? upper : (upper + values[count / 2 - 1]) / 2;
}

/* splitmix64 */
uint64_t bench_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
