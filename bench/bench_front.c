/* front: what the batching front itself costs per step, by sequences. Nothing is computed: each step is committed at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_front.h"
#include "made.h"

#define REQUESTS_PER_SEQUENCE 4u
#define ANSWERS_LONGER 4u /* so that most of a step's sequences decode, whatever their number */

ofl_status front_submit(ofl_front *front, uint64_t count, uint32_t longer, uint64_t *random)
{
    for (uint64_t i = 0; i < count; i++) {
        ofl_request request = {.struct_size = sizeof request};
        request.prompt_tokens = 16 + (uint32_t)(bench_random(random) % 256);
        request.max_new_tokens = longer * (16 + (uint32_t)(bench_random(random) % 128));
        ofl_status status = ofl_front_submit(front, &request, NULL);
        if (status != OFL_OK) return status;
    }
    return OFL_OK;
}

typedef struct cost { double steps, seconds, slowest, items; } cost;

static ofl_status run_all(ofl_front *front, uint8_t *finished, cost *out)
{
    for (;;) {
        ofl_step step = {.struct_size = sizeof step};
        double before = bench_seconds();
        ofl_status status = ofl_front_next_step(front, &step);
        if (status == OFL_END) return OFL_OK;
        if (status == OFL_OK) status = ofl_front_commit(front, finished, 0);
        if (status != OFL_OK) return status;
        double took = bench_seconds() - before;
        out->steps++;
        out->seconds += took;
        out->items += step.item_count;
        if (took > out->slowest) out->slowest = took;
    }
}

static ofl_status measure(const ofl_plan *plan, uint32_t sequences, cost *out)
{
    ofl_front *front = NULL;
    uint64_t random = 1;
    uint8_t *finished = calloc(sequences, 1);
    if (finished == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    ofl_status status = ofl_front_create(plan, NULL, &front);
    if (status == OFL_OK) status = front_submit(front, (uint64_t)sequences * REQUESTS_PER_SEQUENCE, ANSWERS_LONGER, &random);
    if (status == OFL_OK) status = run_all(front, finished, out);
    ofl_front_destroy(front);
    free(finished);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status add_row(const ofl_model *model, const ofl_machine *machine, uint32_t sequences, bench_report *report)
{
    const ofl_workload workload = {
        .struct_size = sizeof workload,
        .objective = OFL_THROUGHPUT,
        .context_tokens = front_most_tokens(ANSWERS_LONGER),
        .sequences = sequences,
    };
    ofl_plan *plan = NULL;
    cost c = {0};
    char label[32];
    ofl_status status = ofl_plan_make(model, machine, &workload, &plan);
    if (status != OFL_OK) return app_forward(status);
    status = measure(plan, sequences, &c);
    ofl_plan_destroy(plan);
    if (status != OFL_OK) return status;
    (void)snprintf(label, sizeof label, "%u sequences", sequences);
    bench_report_row(report, label);
    bench_report_number(report, "steps", c.steps);
    bench_report_number(report, "items_per_step", c.items / c.steps);
    bench_report_number(report, "seconds_per_step", c.seconds / c.steps);
    bench_report_number(report, "slowest_seconds", c.slowest);
    return OFL_OK;
}

static ofl_status cost_rows(bench_output output, bench_report **out)
{
    static const uint32_t counts[] = {1, 8, 32, 64, 128, 256, 512};
    const made_shape shape = {16, 1024, 16, 4, 2816, 32000, 0};
    ofl_model *model = NULL;
    ofl_machine *machine = NULL;
    ofl_status status = made_model(&shape, &model);
    if (status == OFL_OK) status = made_machine(80000000000u, &machine);
    if (status == OFL_OK) status = bench_report_open("front", NULL, output, out);
    for (size_t i = 0; status == OFL_OK && i < sizeof counts / sizeof counts[0]; i++) status = add_row(model, machine, counts[i], *out);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
    return status;
}

int bench_front(int argc, char **argv)
{
    uint64_t requests = 0;
    int queue = 0, exit_status = EXIT_DONE;
    bench_output out = {0};
    const cli_option options[] = {
        {"--queue", CLI_COUNT, &requests, &queue, "N", NULL, "instead: N requests of mixed length to their end, simulated, beside a static batch"},
        BENCH_OUTPUT_OPTIONS(out),
    };
    const cli_program program = {"ofload-bench front",
                                 "[options]",
                                 "Times the batching front alone: next step and commit, by sequences at once, over a queue of four requests for each.",
                                 NULL,
                                 options,
                                 sizeof options / sizeof options[0]};
    bench_report *report = NULL;
    ofl_status status = bench_parse(&program, argc, argv, &exit_status);
    if (status == OFL_END) return exit_status;
    if (status == OFL_OK && queue && (requests == 0 || requests > 1000000))
        status = app_fail(OFL_ERROR_ARGUMENT, "--queue: a count from 1 to 1000000 is needed");
    if (status == OFL_OK) status = queue ? front_queue_rows(requests, out, &report) : cost_rows(out, &report);
    return bench_report_close(report, &program, status);
}
