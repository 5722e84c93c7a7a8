/* replay published: what other engines published, beside a forecast of their own layout where this planner can state it, and of this
 * project's plan for the same hardware. Models are shapes alone; nothing runs. */
#include "bench_replay.h"

#include <stdio.h>

#include "made.h"

/* Opt-30b and -175b: no gate, head tied to the embedding (their table of positions is left out). */
static const made_shape opt30 = {48, 7168, 56, 56, 28672, 50272, 0}, opt175 = {96, 12288, 96, 96, 49152, 50272, 0},
                        mixtral = {32, 4096, 32, 8, 14336, 32000, 8};
static const made_kind opt = {.dtype = OFL_DTYPE_F16, .plain_ffn = 1, .tied = 1}, opt_4bit = {.dtype = OFL_DTYPE_Q4_0, .plain_ffn = 1, .tied = 1},
                       moe_4bit = {.dtype = OFL_DTYPE_Q4_0, .experts_used = 2};

/* All of it assumed: data sheets, and what such links are known to carry. */
typedef struct hardware { const char *name; double vram, link, host, file, flops, bandwidth; } hardware;
static const hardware t4 = {"T4 16 GB", 16e9, 12e9, 208e9, 2e9, 65e12, 320e9}, v100 = {"V100 32 GB", 32e9, 12.2e9, 512e9, 2e9, 125e12, 900e9},
                      rtx3090 = {"RTX 3090", 24e9, 25e9, 64e9, 2e9, 71e12, 936e9};
#define PAGEABLE_SHARE 0.5 /* of the link, from memory that is not page-locked */

typedef enum own { OWN_UNKNOWN, OWN_ALL_OFFLOADED, OWN_ALL_PAGEABLE, OWN_LAYERS_ON_CPU } own;

/* prompt, answer: tokens of each sequence; prompt 0: steps that decode, of sequences of `answer` tokens. */
typedef struct point {
    const char *label;
    const made_shape *shape;
    const made_kind *kind;
    const hardware *on;
    own layout;
    uint32_t batch, prompt, answer;
    ofl_kv_type kv_type;
    double published;
    const char *note;
} point;

static const point points[] = {
    {"ZeRO-Inference 2022, OPT-30B", &opt30, &opt, &v100, OWN_ALL_OFFLOADED, 256, 0, 64, OFL_KV_F16, 43, "context of 64 assumed"},
    {"ZeRO-Inference, OPT-30B", &opt30, &opt, &t4, OWN_ALL_OFFLOADED, 4, 512, 32, OFL_KV_F16, 0.60, ""},
    {"Accelerate, OPT-30B", &opt30, &opt, &t4, OWN_ALL_PAGEABLE, 8, 512, 32, OFL_KV_F16, 0.62, "its copies: from pageable memory, half the rate"},
    {"FlexGen, OPT-30B", &opt30, &opt, &t4, OWN_UNKNOWN, 144, 512, 32, OFL_KV_F16, 7.32, "batch 144, its KV and attention on the host"},
    {"FlexGen, OPT-30B 4-bit", &opt30, &opt_4bit, &t4, OWN_UNKNOWN, 512, 512, 32, OFL_KV_Q8_0, 8.38, "batch 512, its KV 4-bit on the host; here 8-bit"},
    {"FlexGen, OPT-175B", &opt175, &opt, &t4, OWN_UNKNOWN, 256, 512, 32, OFL_KV_F16, 0.69, "batch 256, its KV on the host; disk 2 GB/s assumed"},
    {"FlexGen, OPT-175B 4-bit", &opt175, &opt_4bit, &t4, OWN_UNKNOWN, 144, 512, 32, OFL_KV_Q8_0, 1.12, "batch 144, its KV 4-bit on the host; here 8-bit"},
    {"llama.cpp, Mixtral 8x7B q4", &mixtral, &moe_4bit, &rtx3090, OWN_LAYERS_ON_CPU, 1, 0, 512, OFL_KV_F16, 24,
     "its layout: 4 of 32 layers at the CPU's published 5 tokens/s"},
};
#define CPU_LAYERS_RATE 5.0
#define CPU_LAYERS_RESIDENT 28.0

static ofl_status machine_make(const hardware *on, double link, ofl_machine **out)
{
    const struct { ofl_figure figure; double value; } figures[] = {
        {OFL_FIGURE_VRAM, on->vram}, {OFL_FIGURE_LINK, link}, {OFL_FIGURE_HOST, on->host}, {OFL_FIGURE_FILE, on->file},
        {OFL_FIGURE_DEVICE_FLOPS, on->flops}, {OFL_FIGURE_DEVICE_BANDWIDTH, on->bandwidth},
    };
    ofl_status status = ofl_machine_create(on->name, out);
    for (size_t i = 0; status == OFL_OK && i < sizeof figures / sizeof figures[0]; i++)
        status = ofl_machine_set(*out, figures[i].figure, figures[i].value, OFL_SOURCE_ASSUMED);
    return status == OFL_OK ? ofl_machine_assume(*out) : status;
}

/* Prompts and answers of so many requests to the end. */
static ofl_status queue_rate(const ofl_plan *plan, const point *p, uint64_t requests, double *tokens_per_second)
{
    const ofl_request request = {.struct_size = sizeof request, .prompt_tokens = p->prompt, .max_new_tokens = p->answer};
    ofl_front_forecast forecast = {.struct_size = sizeof forecast};
    ofl_front *front = NULL;
    ofl_status status = ofl_front_create(plan, NULL, &front);
    for (uint64_t i = 0; i < requests && status == OFL_OK; i++) status = ofl_front_submit(front, &request, NULL);
    if (status == OFL_OK) status = ofl_front_forecast_get(front, &forecast);
    ofl_front_destroy(front);
    *tokens_per_second = (double)(requests * p->answer) / forecast.seconds;
    return status;
}

static void start_row(bench_report *report, const point *p, const char *whose)
{
    char label[128];
    (void)snprintf(label, sizeof label, "%s, %s: %s", p->label, p->on->name, whose);
    bench_report_row(report, label);
    bench_report_text(report, "compute", "modelled");
}

static void end_row(bench_report *report, const point *p, double tokens_per_second, int its_own)
{
    char text[160];
    if (tokens_per_second > 0) bench_report_number(report, "tokens_per_second", tokens_per_second);
    bench_report_number(report, "published", p->published);
    if (its_own && tokens_per_second > 0) bench_report_number(report, "error_percent", 100 * (tokens_per_second / p->published - 1));
    if (!its_own && tokens_per_second > 0) bench_report_number(report, "over_published", tokens_per_second / p->published);
    (void)snprintf(text, sizeof text, "link %g GB/s, %g TFLOP/s, %g GB/s%s%s", p->on->link / 1e9, p->on->flops / 1e12, p->on->bandwidth / 1e9,
                   p->note[0] != '\0' ? "; " : "", p->note);
    bench_report_text(report, "assumed", text);
}

static ofl_status plan_row(bench_report *report, const point *p, const ofl_model *model, const ofl_workload *work, const char *whose, int its_own)
{
    ofl_machine *machine = NULL;
    ofl_plan *plan = NULL;
    ofl_forecast f = {.struct_size = sizeof f};
    ofl_budget b = {.struct_size = sizeof b};
    double rate = 0;
    double link = p->on->link * (its_own && p->layout == OWN_ALL_PAGEABLE ? PAGEABLE_SHARE : 1);
    ofl_status status = machine_make(p->on, link, &machine);
    if (status == OFL_OK) status = ofl_plan_make(model, machine, work, &plan);
    if (status == OFL_OK) status = ofl_plan_forecast_get(plan, &f);
    if (status == OFL_OK) status = ofl_plan_budget_get(plan, &b);
    if (status == OFL_OK) rate = f.tokens_per_second;
    /* of this project's plan: a queue twenty times as long as what runs at once */
    if (status == OFL_OK && p->prompt > 0) status = queue_rate(plan, p, its_own ? p->batch : UINT64_C(20) * f.sequences, &rate);
    if (status == OFL_OK) {
        start_row(report, p, whose);
        bench_report_text(report, "bound", f.link_bound ? "link" : "compute");
        bench_report_number(report, "sequences", f.sequences);
        bench_report_number(report, "link_share", (double)b.stream_bytes_per_step / f.step.step_seconds / link);
        bench_report_number(report, "bound_seconds", f.lower_bound_seconds);
        bench_report_number(report, "forecast_seconds", f.step.step_seconds);
        end_row(report, p, rate, its_own);
    }
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

/* Bytes that a token reads in the blocks: all but the experts, and of these the ones it is sent to. */
static ofl_status bytes_read(const ofl_model *model, double *out)
{
    ofl_tensor_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_model_expert_bytes_per_step(model, 1, out);
    for (uint32_t i = 0; i < ofl_model_tensor_count(model) && status == OFL_OK; i++) {
        status = ofl_model_tensor_get(model, i, &info);
        if (status == OFL_OK && info.tensor_class == OFL_CLASS_DENSE) *out += (double)info.bytes;
    }
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status cpu_layers_row(bench_report *report, const point *p, const ofl_model *model)
{
    double bytes = 0, resident = CPU_LAYERS_RESIDENT / p->shape->layers;
    ofl_status status = bytes_read(model, &bytes);
    double seconds = resident * bytes / p->on->bandwidth + (1 - resident) / CPU_LAYERS_RATE;
    if (status != OFL_OK) return status;
    start_row(report, p, "its layout");
    bench_report_text(report, "bound", "compute");
    bench_report_number(report, "sequences", p->batch);
    bench_report_number(report, "forecast_seconds", seconds);
    end_row(report, p, p->batch / seconds, 1);
    return OFL_OK;
}

static ofl_status own_row(bench_report *report, const point *p, const ofl_model *model)
{
    const ofl_workload offloaded = {.struct_size = sizeof offloaded, .context_tokens = p->prompt + p->answer, .sequences = p->batch,
                                    .prefill_chunk_tokens = p->prompt > 0 ? p->batch * p->prompt : p->answer, .force_layers = 1, .kv_type = p->kv_type};
    if (p->layout == OWN_ALL_OFFLOADED || p->layout == OWN_ALL_PAGEABLE) return plan_row(report, p, model, &offloaded, "its layout, every block streamed", 1);
    if (p->layout == OWN_LAYERS_ON_CPU) return cpu_layers_row(report, p, model);
    return OFL_OK; /* the published figure stands in the other row */
}

static ofl_status add_point(bench_report *report, const point *p)
{
    ofl_model *model = NULL;
    ofl_workload work = {.struct_size = sizeof work, .context_tokens = p->prompt + p->answer, .kv_type = p->kv_type,
                         .prefill_chunk_tokens = p->prompt, .objective = p->batch > 1 ? OFL_THROUGHPUT : OFL_LATENCY};
    made_kind kind = *p->kind;
    static const char no_bytes[1];
    kind.data = no_bytes;
    ofl_status status = made_model_kind(p->shape, &kind, &model);
    if (status == OFL_OK) status = own_row(report, p, model);
    if (status == OFL_OK) status = plan_row(report, p, model, &work, "this project's plan", 0);
    ofl_model_destroy(model);
    return status;
}

ofl_status replay_published_rows(bench_output output, bench_report **out)
{
    ofl_status status = bench_report_open("replay published", NULL, output, out);
    for (size_t i = 0; i < sizeof points / sizeof points[0] && status == OFL_OK; i++)
        status = add_point(*out, &points[i]);
    return status;
}
