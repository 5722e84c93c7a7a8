/* ofload-bench: measures the parts of this project, and makes models to measure them with. */
#include <stdio.h>
#include <string.h>

#include "bench.h"

typedef struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} subcommand;

static const subcommand subcommands[] = {
    {"link", bench_link, "copies of a device by size, with the fit start + bytes / rate"},
    {"plan", bench_plan, "what planning costs, by tensors"},
    {"front", bench_front, "what the batching front costs per step, by sequences; --queue N: what it gains"},
    {"stream", bench_stream, "the copy engine alone, at several shares of compute"},
    {"designs", bench_designs, "the same job by simpler ways of streaming and by this engine"},
    {"replay", bench_replay, "published experiments beside this project's forecast and measurement"},
    {"mkmodel", bench_mkmodel, "writes a GGUF file of any shape with random weights"},
};

static void print_help(FILE *to)
{
    (void)fputs("usage: ofload-bench NAME [options]\n\n", to);
    for (size_t i = 0; i < sizeof subcommands / sizeof subcommands[0]; i++) (void)fprintf(to, "  %-10s  %s\n", subcommands[i].name, subcommands[i].summary);
    (void)fputs("\nofload-bench NAME --help lists the options of each.\n", to);
}

static int answered(const char *word)
{
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) print_help(stdout);
    else if (strcmp(word, "--version") == 0) printf("ofload-bench %s\n", ofl_version());
    else return 0;
    return 1;
}

int main(int argc, char **argv)
{
    if (argc > 1 && answered(argv[1])) return EXIT_DONE;
    for (size_t i = 0; argc > 1 && i < sizeof subcommands / sizeof subcommands[0]; i++) {
        if (strcmp(subcommands[i].name, argv[1]) == 0) return subcommands[i].run(argc - 1, argv + 1);
    }
    if (argc > 1) (void)fprintf(stderr, "ofload-bench: there is no benchmark \"%s\"; there are:\n", argv[1]);
    print_help(stderr);
    return EXIT_USAGE;
}
