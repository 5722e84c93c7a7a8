#include "batch/setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "batch/contents.h"
#include "batch/forward.h"
#include "batch/kv.h"
#include "common/cli.h"
#include "common/plan_file.h"

#define LESS_SHARE 0.85 /* of the memory planned for, when that was too much */
#define GUESSED_SEQUENCES 512u /* up to where compute is measured when the plan is to choose their number */
#define GUESSED_CHUNK 512u

struct setup {
    const batch_options *options;
    int (*stop)(void);
    ofl_model *model;
    char weights_hash[HASH128_HEX_BYTES];
    tokenizer *tokenizer;
    bool template_known, option_wrong;
    chat_template template;
    ofl_device *device;
    ofl_machine *machine;
    ofl_plan *plan;
    ofl_engine *engine;
    const forward_kind *kind; /* what computes on the device */
    forward *forward;
    uint32_t usable_ids, vocabulary, head_dim;
    ofl_compute_type compute_type;
    ofl_kv_type kv_type;
    ofl_compute_figures figures; /* measured */
    ofl_workload workload;
    ofl_budget first;     /* of the first plan */
    int shown_percent;
    double bound_seconds; /* of the steps that ran */
    uint64_t streamed_bytes; /* by engines that are closed */
    double wait_seconds;     /* of the steps that ran: compute waited for bytes */
};

static double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void say(const setup *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const setup *s, const char *format, ...)
{
    va_list arguments;
    if (s->options->quiet) return;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
}

/* ---- text ---- */

/* Only a chat request needs a template, so only then it is looked for. */
static ofl_status encode_chat(setup *s, const request *r, token_list *out)
{
    if (!s->template_known) {
        ofl_status status = chat_template_choose(s->tokenizer, s->options->chat_template, &s->template);
        /* No request's fault. */
        if (status != OFL_OK) return status == OFL_ERROR_ARGUMENT ? OFL_ERROR_UNSUPPORTED : status;
        s->template_known = true;
    }
    return chat_template_encode(s->template, s->tokenizer, r->messages, r->message_count, out);
}

static ofl_status encode(void *context, const request *r, token_list *out)
{
    setup *s = context;
    if (r->chat) return encode_chat(s, r, out);
    int32_t begin = tokenizer_begin(s->tokenizer);
    ofl_status status = begin >= 0 ? tokens_push(out, begin) : OFL_OK;
    return status == OFL_OK ? tokenizer_encode(s->tokenizer, r->prompt, strlen(r->prompt), false, out) : status;
}

static const char *bytes_of(void *context, int32_t id, size_t *bytes_out) { return tokenizer_bytes(((setup *)context)->tokenizer, id, bytes_out); }
static bool is_end(void *context, int32_t id) { return tokenizer_is_end(((setup *)context)->tokenizer, id); }

/* ---- plan ---- */

static ofl_status open_device(setup *s)
{
    const char *spec = s->options->plan.device != NULL ? s->options->plan.device : "cuda:0";
    if (ofl_device_open(spec, &s->device) == OFL_OK) return OFL_OK;
    ofl_status status = ofl_diagnostic_get()->status;
    if (s->options->plan.device != NULL) return app_forward(status);
    return app_fail(status, "%s, such as --device sim:vram=64MiB,h2d=1GB/s", ofl_error_message());
}

/* What computes on the device. Requests are computed in real time, of which a virtual clock knows nothing: every figure of it would be wrong. */
static ofl_status choose_kind(setup *s)
{
    ofl_device_info info = {.struct_size = sizeof info};
    if (ofl_device_info_get(s->device, &info) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    if (info.virtual_clock)
        return app_fail(OFL_ERROR_ARGUMENT,
                        "--device %s: requests are computed in real time, which a virtual clock does not count; leave clock=virtual out", info.spec);
    ofl_status status = forward_choose(s->device, &s->kind);
    if (status == OFL_OK && s->kind->chooses_on_device && s->options->threads != 0)
        return app_fail(OFL_ERROR_ARGUMENT, "--threads has no effect on %s: products run on the GPU; leave it out", info.spec);
    return status == OFL_OK && s->kind->supports != NULL ? s->kind->supports(s->compute_type, s->kv_type, s->head_dim) : status;
}

/* Its peak is that of the run then, and not of what was measured before it. */
static ofl_status open_device_anew(setup *s)
{
    ofl_device_close(s->device);
    s->device = NULL;
    return open_device(s);
}

/* The machine, measured or read. */
static ofl_status open_machine(setup *s)
{
    ofl_status status = open_device(s);
    if (status == OFL_OK) status = choose_kind(s);
    if (status == OFL_OK) status = plan_options_machine(&s->options->plan, s->device, &s->machine);
    for (uint32_t i = 0; i < ofl_machine_note_count(s->machine); i++) say(s, "note: %s\n", ofl_machine_note(s->machine, i));
    return status == OFL_OK ? open_device_anew(s) : status;
}

/* Seconds to pick one token from a row of logits like this model's. */
static ofl_status time_sampler(const setup *s, double temperature, double *out)
{
    enum { ROUNDS = 5 };
    float *row = malloc((size_t)s->vocabulary * sizeof *row);
    void *scratch = malloc((size_t)s->usable_ids * 8);
    if (row == NULL || scratch == NULL) {
        free(row);
        free(scratch);
        return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    }
    for (uint32_t i = 0; i < s->vocabulary; i++) row[i] = (float)((i * 2654435761u) >> 16) * (20.0f / 65536.0f);
    const sampling how = {.temperature = temperature, .top_p = 1, .random = 0.5};
    (void)sampling_pick(&how, row, s->usable_ids, scratch);
    double began = seconds_now();
    for (int i = 0; i < ROUNDS; i++) (void)sampling_pick(&how, row, s->usable_ids, scratch);
    *out = (seconds_now() - began) / ROUNDS;
    free(row);
    free(scratch);
    return OFL_OK;
}

static uint64_t free_bytes(const setup *s)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    return ofl_device_memory_get(s->device, &memory) == OFL_OK ? memory.free_bytes : 0;
}

/* What computes has loaded libraries and kernels when it has run once; they stay, beside the driver's own. */
static void count_libraries(setup *s, uint64_t bytes)
{
    ofl_source source = OFL_SOURCE_ASSUMED;
    double driver = ofl_machine_get(s->machine, OFL_FIGURE_RUNTIME, &source);
    if (source != OFL_SOURCE_GIVEN) (void)ofl_machine_set(s->machine, OFL_FIGURE_RUNTIME, driver + (double)bytes, OFL_SOURCE_MEASURED);
}

/* What the plan may take of the device: measuring takes no more. */
static uint64_t usable_bytes(const setup *s)
{
    double bytes = ofl_machine_get(s->machine, OFL_FIGURE_VRAM, NULL) - ofl_machine_get(s->machine, OFL_FIGURE_RUNTIME, NULL);
    return bytes >= 1 ? (uint64_t)bytes : 1;
}

/* The compute of this machine on this model, measured; the plan's forecast rests on it. */
static ofl_status measure_compute(setup *s, ofl_workload *w, const backend_load *load)
{
    uint32_t sequences = w->sequences != 0 ? w->sequences : GUESSED_SEQUENCES;
    if (w->sequences == 0 && w->objective == OFL_LATENCY) sequences = 1;
    else if (w->queue_length != 0 && w->queue_length < sequences) sequences = (uint32_t)w->queue_length; /* more never run at once */
    uint32_t chunk = w->prefill_chunk_tokens != 0 ? w->prefill_chunk_tokens : GUESSED_CHUNK;
    forward_measure_job job = {.model = s->model, .device = s->device, .compute_type = s->compute_type, .kv_type = w->kv_type,
                               .threads = (uint32_t)s->options->threads, .max_tokens = sequences + chunk, .max_rows = sequences,
                               .memory_bytes = usable_bytes(s), .drawn_share = 1 - load->greedy_share};
    double began = seconds_now();
    uint64_t before = free_bytes(s), after;
    s->figures.struct_size = sizeof s->figures;
    ofl_status status = forward_measure(&job, &s->figures);
    if (status == OFL_OK) status = open_device_anew(s);
    if (status != OFL_OK) return status;
    after = free_bytes(s);
    if (after < before) count_libraries(s, before - after);
    status = ofl_compute_use(&s->figures, w);
    if (status != OFL_OK) return status;
    say(s, "measured this machine's compute for this model in %.1f s\n", seconds_now() - began);
    return OFL_OK;
}

/* On the CPU sampling comes after each step, for each row of logits. */
static ofl_status measure_sampling(const setup *s, ofl_workload *w, const backend_load *load)
{
    double greedy = 0, drawn = 0, share = load->greedy_share;
    if (s->kind->chooses_on_device) return OFL_OK;
    ofl_status status = time_sampler(s, 0, &greedy);
    if (status == OFL_OK && share < 1) status = time_sampler(s, 1, &drawn);
    w->host_seconds_per_row = share * greedy + (1 - share) * drawn;
    return status;
}

/* Plans for one context; *room_out: tokens of KV in whole blocks. */
static ofl_status try_plan(setup *s, ofl_workload *w, uint64_t context, uint64_t *room_out)
{
    ofl_plan_settings settled = {.struct_size = sizeof settled};
    ofl_plan_destroy(s->plan);
    s->plan = NULL;
    w->context_tokens = context;
    ofl_status status = ofl_plan_make(s->model, s->machine, w, &s->plan);
    if (status == OFL_OK) status = ofl_plan_settings_get(s->plan, &settled);
    if (status != OFL_OK) return app_forward(status);
    *room_out = settled.kv_capacity_tokens / settled.kv_block_tokens * settled.kv_block_tokens;
    return OFL_OK;
}

/* KV is handed out in blocks, so the room for it is planned by what requests typically need: more of them run at once than if each were as long as
 * the longest. The longest must still fit alone; else the plan is made for it. */
static ofl_status plan_contexts(setup *s, const backend_load *load)
{
    ofl_workload w = s->workload;
    uint64_t room = 0, longest = load->context_tokens, typical = load->typical_tokens, asked = w.context_tokens;
    if (asked != 0 || typical == 0 || typical >= longest) return try_plan(s, &w, asked != 0 ? asked : longest, &room);
    ofl_status status = try_plan(s, &w, typical, &room);
    if (status == OFL_OK && room < longest && w.sequences == 0) {
        w.sequences = (uint32_t)(longest / typical) + 1;
        status = try_plan(s, &w, typical, &room);
        w.sequences = 0;
    }
    return status == OFL_OK && room >= longest ? OFL_OK : try_plan(s, &w, longest, &room);
}

/* What was free when the machine was measured, by this program or in its file, may be gone: the plan is for what is there now. What is taken
 * later is found when the engine opens. */
static ofl_status shrink_machine(setup *s)
{
    char before[32], now[32];
    ofl_memory_info memory = {.struct_size = sizeof memory};
    if (ofl_device_memory_get(s->device, &memory) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    double there = (double)memory.free_bytes + ofl_machine_get(s->machine, OFL_FIGURE_RUNTIME, NULL);
    double planned = ofl_machine_get(s->machine, OFL_FIGURE_VRAM, NULL);
    if (planned <= there) return OFL_OK;
    say(s, "device memory: %s were to be used, %s are there now with what driver and libraries take: planned for that\n",
        cli_show_bytes(before, (uint64_t)planned, 0), cli_show_bytes(now, (uint64_t)there, 0));
    if (ofl_machine_set(s->machine, OFL_FIGURE_VRAM, there, OFL_SOURCE_MEASURED) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    return OFL_OK;
}

static void say_plan(const setup *s)
{
    char a[32], b[32], c[32];
    ofl_budget budget = {.struct_size = sizeof budget};
    ofl_plan_settings settled = {.struct_size = sizeof settled};
    ofl_forecast forecast = {.struct_size = sizeof forecast};
    if (ofl_plan_budget_get(s->plan, &budget) != OFL_OK || ofl_plan_settings_get(s->plan, &settled) != OFL_OK ||
        ofl_plan_forecast_get(s->plan, &forecast) != OFL_OK)
        return;
    say(s, "plan: %s resident, %s streamed per step, %u sequences of %" PRIu64 " tokens; a step takes %s and is %s-bound (%s)\n",
        cli_show_bytes(a, budget.resident_bytes, 0), cli_show_bytes(b, budget.stream_bytes_per_step, 0), settled.sequences, settled.context_tokens,
        cli_show_seconds(c, forecast.step.step_seconds), forecast.link_bound ? "link" : "compute",
        ofl_machine_simulated(s->machine) ? "simulated device" : "forecast");
}

/* What device, machine and planner call a wrong argument comes from an option. */
static ofl_status note_option(setup *s, ofl_status status)
{
    if (status == OFL_ERROR_ARGUMENT) s->option_wrong = true;
    return status;
}

static ofl_status plan(void *context, const backend_load *load, const ofl_plan **out)
{
    setup *s = context;
    ofl_workload *w = &s->workload;
    ofl_status status = note_option(s, open_machine(s));
    if (status == OFL_OK && s->plan == NULL) {
        status = plan_options_workload(&s->options->plan, w);
        w->compute_type = s->compute_type;
        if (status == OFL_OK && s->kind->workload != NULL) status = s->kind->workload(s->model, w);
        if (w->objective == OFL_THROUGHPUT) w->queue_length = load->requests;
        if (status == OFL_OK) status = measure_compute(s, w, load);
        if (status == OFL_OK) status = measure_sampling(s, w, load);
        if (status == OFL_OK) status = shrink_machine(s);
        if (status == OFL_OK) status = note_option(s, plan_contexts(s, load));
    }
    if (status != OFL_OK) return status;
    s->first.struct_size = sizeof s->first;
    if (ofl_plan_budget_get(s->plan, &s->first) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    say_plan(s);
    *out = s->plan;
    return OFL_OK;
}

static void unload(setup *s)
{
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    forward_close(s->forward);
    s->forward = NULL;
    if (s->engine != NULL && ofl_engine_stats_get(s->engine, &stats) == OFL_OK) s->streamed_bytes += stats.bytes_streamed;
    ofl_engine_close(s->engine);
    s->engine = NULL;
    s->shown_percent = 0;
}

/* What another process took is no longer there; where nothing seems to be missing, what was planned for is too much all the same. */
static ofl_status lower_vram(setup *s)
{
    ofl_memory_info memory = {.struct_size = sizeof memory};
    if (ofl_device_memory_get(s->device, &memory) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    double there = (double)memory.free_bytes + ofl_machine_get(s->machine, OFL_FIGURE_RUNTIME, NULL);
    double planned = ofl_machine_get(s->machine, OFL_FIGURE_VRAM, NULL);
    ofl_status status = ofl_machine_set(s->machine, OFL_FIGURE_VRAM, there < planned ? there : LESS_SHARE * planned, OFL_SOURCE_MEASURED);
    return status == OFL_OK ? OFL_OK : app_forward(status);
}

static ofl_status plan_less(void *context, const backend_load *load, const ofl_plan **out, uint64_t *bytes_out)
{
    setup *s = context;
    ofl_budget budget = {.struct_size = sizeof budget};
    if (s->options->plan_file != NULL) return app_fail(OFL_ERROR_DEVICE_MEMORY, "--plan gives the layout; without it one for less memory is made");
    unload(s);
    ofl_status status = lower_vram(s);
    if (status == OFL_OK) status = plan_contexts(s, load);
    if (status != OFL_OK) return status;
    if (ofl_plan_budget_get(s->plan, &budget) != OFL_OK) return app_forward(ofl_diagnostic_get()->status);
    say_plan(s);
    *out = s->plan;
    *bytes_out = budget.total_bytes;
    return OFL_OK;
}

static ofl_status shrink(void *context, const backend_limits *limits)
{
    return forward_shrink(((setup *)context)->forward, limits->tokens_per_step, limits->sequences, limits->kv_tokens);
}

static ofl_status read_plan(setup *s, const char *path)
{
    ofl_status status = plan_file_read(path, NULL, &s->plan);
    if (status == OFL_OK && ofl_plan_check(s->plan, s->model) != OFL_OK) status = app_fail(ofl_diagnostic_get()->status, "%s: %s", path, ofl_error_message());
    return status;
}

/* ---- steps ---- */

static int show_load(void *context, uint64_t done, uint64_t total)
{
    setup *s = context;
    int percent = total > 0 ? (int)(100.0 * (double)done / (double)total) : 100;
    if (!s->options->no_progress && percent >= s->shown_percent + 10) {
        say(s, "loading: %d %%\n", percent);
        s->shown_percent = percent;
    }
    return s->stop();
}

static void show_message(void *context, const char *sentence) { say(context, "%s\n", sentence); }

static ofl_status load(void *context)
{
    setup *s = context;
    ofl_engine_options options = {.struct_size = sizeof options, .progress = show_load, .message = show_message, .context = s};
    ofl_forecast planned = {.struct_size = sizeof planned};
    char about[32];
    ofl_status status = ofl_plan_forecast_get(s->plan, &planned);
    if (status == OFL_OK && !s->options->no_progress) say(s, "loading: about %s\n", cli_show_seconds(about, planned.load_seconds));
    if (status == OFL_OK) status = ofl_engine_open(s->plan, s->model, s->device, &options, &s->engine);
    if (status != OFL_OK) return app_forward(status);
    status = forward_open(s->model, s->plan, s->engine, s->device, (uint32_t)s->options->threads, &s->forward);
    if (status == OFL_OK) ofl_engine_stats_reset(s->engine);
    return status;
}

/* What the step waited, and what it could not have been faster than: its own compute, or its copies at the link's rate. */
static void add_times(setup *s)
{
    forward_times times;
    ofl_budget budget = {.struct_size = sizeof budget};
    double rate = ofl_machine_get(s->machine, OFL_FIGURE_LINK, NULL);
    forward_times_get(s->forward, &times);
    (void)ofl_plan_budget_get(s->plan, &budget);
    s->wait_seconds += times.wait;
    s->bound_seconds += fmax(times.compute, rate > 0 ? (double)budget.stream_bytes_per_step / rate : 0);
}

static ofl_status step(void *context, const ofl_step *step_to_run, const int32_t *tokens, row_choice *rows)
{
    setup *s = context;
    ofl_status status = forward_step(s->forward, step_to_run, tokens, s->usable_ids, rows);
    if (status == OFL_OK) add_times(s);
    return status;
}

static void last_step(void *context, backend_step *out)
{
    const setup *s = context;
    forward_times times;
    ofl_budget budget = {.struct_size = sizeof budget};
    forward_times_get(s->forward, &times);
    (void)ofl_plan_budget_get(s->plan, &budget);
    *out = (backend_step){(double)budget.stream_bytes_per_step, times.wait};
}

static double now(void *context) { return 1e-9 * (double)ofl_device_now_ns(((setup *)context)->device); }

static void figures(void *context, backend_figures *out)
{
    const setup *s = context;
    ofl_memory_info memory = {.struct_size = sizeof memory};
    ofl_engine_stats stats = {.struct_size = sizeof stats};
    ofl_device_info info = {.struct_size = sizeof info};
    (void)ofl_device_memory_get(s->device, &memory);
    (void)ofl_device_info_get(s->device, &info);
    if (s->engine != NULL) (void)ofl_engine_stats_get(s->engine, &stats);
    *out = (backend_figures){.peak_device_bytes = memory.peak_bytes,
                             .budget_bytes = s->first.vram_bytes,
                             .plan_bytes = s->first.total_bytes,
                             .streamed_bytes = s->streamed_bytes + stats.bytes_streamed,
                             .link_bytes_per_second = ofl_machine_get(s->machine, OFL_FIGURE_LINK, NULL),
                             .wait_seconds = s->wait_seconds,
                             .bound_seconds = s->bound_seconds,
                             .device = info.spec,
                             .simulated = info.simulated != 0};
}

/* ---- open and close ---- */

/* What must be known before a plan is: it decides which requests are errors and whether an earlier output goes on. */
static ofl_status fill_backend(setup *s, backend *out)
{
    ofl_model_shape shape = {.struct_size = sizeof shape};
    ofl_plan_settings settled = {
        .struct_size = sizeof settled, .kv_type = (ofl_kv_type)s->options->plan.kv_type, .compute_type = (ofl_compute_type)s->options->compute};
    settled.context_tokens = s->options->plan.context;
    ofl_status status = ofl_model_shape_get(s->model, &shape);
    if (status == OFL_OK && s->plan != NULL) status = ofl_plan_settings_get(s->plan, &settled);
    if (status != OFL_OK) return app_forward(status);
    status = kv_supports(settled.kv_type, shape.head_dim_k);
    if (status != OFL_OK) return status;
    s->kv_type = settled.kv_type;
    s->head_dim = shape.head_dim_k;
    s->compute_type = settled.compute_type;
    s->vocabulary = shape.vocab_size;
    s->usable_ids = tokenizer_size(s->tokenizer) < shape.vocab_size ? tokenizer_size(s->tokenizer) : shape.vocab_size;
    *out = (backend){
        .context = s,
        .model_name = ofl_model_name(s->model),
        .model_identity = ofl_model_identity(s->model),
        .weights_hash = s->weights_hash,
        .compute = settled.compute_type == OFL_COMPUTE_F32 ? "f32" : "bf16",
        .kv_type = ofl_kv_type_name(settled.kv_type),
        .chat_template = s->options->chat_template != NULL ? s->options->chat_template : "by the model",
        .usable_ids = s->usable_ids,
        .context_given = settled.context_tokens,
        .context_limit = shape.trained_context_tokens,
        .encode = encode,
        .bytes = bytes_of,
        .is_end = is_end,
        .plan = plan,
        .load = load,
        .step = step,
        .shrink = shrink,
        .plan_less = plan_less,
        .now = now,
        .last_step = last_step,
        .figures = figures,
    };
    return OFL_OK;
}

ofl_status setup_open(const batch_options *options, int (*stop)(void), setup **out, backend *backend_out)
{
    setup *s = calloc(1, sizeof *s);
    if (s == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
    s->options = options;
    s->stop = stop;
    ofl_status status = ofl_model_open(options->model, &s->model);
    if (status != OFL_OK) status = app_forward(status);
    if (status == OFL_OK) status = forward_supports(s->model);
    if (status == OFL_OK) status = tokenizer_open(s->model, &s->tokenizer);
    if (status == OFL_OK && options->plan_file != NULL) status = read_plan(s, options->plan_file);
    if (status == OFL_OK) status = contents_hash(s->model, s->weights_hash);
    if (status == OFL_OK) status = fill_backend(s, backend_out);
    if (status == OFL_OK) *out = s;
    else setup_close(s);
    return status;
}

ofl_status setup_check(setup *s) { return note_option(s, plan_options_check_model(&s->options->plan, s->model)); }

bool setup_option_wrong(const setup *s) { return s != NULL && s->option_wrong; }

void setup_close(setup *s)
{
    if (s == NULL) return;
    forward_close(s->forward);
    ofl_engine_close(s->engine);
    ofl_plan_destroy(s->plan);
    ofl_machine_destroy(s->machine);
    ofl_device_close(s->device);
    tokenizer_close(s->tokenizer);
    ofl_model_destroy(s->model);
    free(s);
}
