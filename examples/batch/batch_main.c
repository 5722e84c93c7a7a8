/* ofload-batch: prompts in, answers out. */
#include <stdio.h>
#include <string.h>

#include "batch/batch_options.h"
#include "batch/forward.h"
#include "batch/merge.h"
#include "batch/setup.h"
#include "batch/signals.h"

/* *option_wrong_out: what failed is an option; else a wrong argument is a file or a figure, since the wording was right. */
static ofl_status run(const batch_options *o, int *exit_out, bool *option_wrong_out)
{
    setup *real = NULL;
    backend model;
    run_settings settings = {
        .input = o->input,
        .output = o->output,
        .report = o->report,
        .model = o->model,
        .plan = o->plan_file,
        .machine = o->plan.machine,
        .max_tokens_default = (uint32_t)o->max_tokens_default,
        .shard = o->shard,
        .overwrite = o->overwrite,
        .retry_errors = o->retry_errors,
        .ordered = o->ordered,
        .dry_run = o->dry_run,
        .quiet = o->quiet,
        .json = o->json,
        .progress = !o->no_progress,
        .stop = signals_stop,
        .may_leave = signals_may_leave,
    };
    ofl_status status = setup_open(o, signals_stop, &real, &model);
    if (status == OFL_OK) status = setup_check(real);
    if (status == OFL_OK) status = batch_run(&settings, &model, exit_out);
    *option_wrong_out = setup_option_wrong(real);
    setup_close(real);
    return status;
}

int main(int argc, char **argv)
{
    batch_options options;
    const cli_program *program;
    int exit_status;
    bool option_wrong;
    if (argc > 1 && strcmp(argv[1], "merge") == 0) return merge_main(argc - 1, argv + 1);
    ofl_status status = batch_options_read(argc, argv, &options, &program, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status != OFL_OK) return cli_complain(program, status);
    signals_install();
#ifdef OFLOAD_BATCH_CUDA
    forward_use(&forward_cuda);
#endif
    status = run(&options, &exit_status, &option_wrong);
    if (status == OFL_OK) return exit_status;
    exit_status = cli_complain(program, status);
    return exit_status == EXIT_USAGE && !option_wrong ? EXIT_FAILED : exit_status;
}
