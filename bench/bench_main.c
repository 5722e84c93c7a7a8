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
    {"units", bench_units, "what the engine's own calls cost per step, by units"},
    {"load", bench_load, "how fast weights are loaded, by size"},
    {"accuracy", bench_accuracy, "forecast and measurement of real steps, by model, memory, link and sequences"},
    {"compare", bench_compare, "the same shapes, memory and link through PyTorch with weights fetched per layer"},
    {"mkmodel", bench_mkmodel, "writes a GGUF file of any shape with random weights"},
};

#define COUNT (sizeof subcommands / sizeof subcommands[0])

/* A word that is no benchmark, or none. */
static int answer(int argc, char **argv)
{
    cli_option rows[COUNT];
    const cli_program program = {"ofload-bench", "NAME [options]",
                                 "Measures the parts of libofload, and makes models to measure them with.", NULL, rows, COUNT};
    int exit_status = EXIT_USAGE;
    for (size_t i = 0; i < COUNT; i++)
        rows[i] = (cli_option){.name = subcommands[i].name, .kind = CLI_COMMAND, .help = subcommands[i].summary};
    ofl_status status = cli_parse(&program, &argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK && argc > 1)
        status = app_fail(OFL_ERROR_ARGUMENT, "there is no benchmark \"%.60s\"; ofload-bench --help lists them", argv[1]);
    if (status == OFL_OK) status = app_fail(OFL_ERROR_ARGUMENT, "the name of a benchmark is needed; ofload-bench --help lists them");
    return cli_complain(&program, status);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < COUNT; i++) {
        if (strcmp(subcommands[i].name, argv[1]) == 0) return subcommands[i].run(argc - 1, argv + 1);
    }
    return answer(argc, argv);
}
