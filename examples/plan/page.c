/* The page, line by line: device memory as bars, layers as a strip, the forecast and what would help. */
#include "plan/page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/cli.h"
#include "common/runnable.h"
#include "common/show.h"
#include "plan/curve.h"
#include "plan/head.h"
#include "plan/page_facts.h"

#define BAR_CELLS 24
#define STRIP_CELLS 80

/* Sizes that stand below each other share a unit: that of the largest. */
typedef struct scale { const char *unit; double bytes; int digits; } scale;

static scale scale_for(uint64_t largest)
{
    if (largest >= 1000000000) return (scale){"GB", 1e9, 2};
    if (largest >= 1000000) return (scale){"MB", 1e6, 2};
    return (scale){"kB", 1e3, 1};
}

static char *scaled(char *buffer, scale s, uint64_t bytes)
{
    (void)snprintf(buffer, 32, "%.*f", s.digits, (double)bytes / s.bytes);
    return buffer;
}

static void start_bar(const facts *f, const char *name, uint64_t bytes, scale s)
{
    char size[32];
    printf("  %-9s  ", name);
    show_bar((double)bytes / (double)f->budget.vram_bytes, BAR_CELLS);
    printf("  %6s %s  ", scaled(size, s, bytes), s.unit);
}

static void print_kv_words(const facts *f)
{
    char tokens[32], context[32];
    const ofl_plan_settings *s = &f->settings;
    printf("%s tokens, ", cli_show_count(tokens, s->context_tokens * s->sequences));
    if (s->sequences == 1) printf("one sequence of %s\n", cli_show_count(context, s->context_tokens));
    else printf("%u sequences of %s\n", s->sequences, cli_show_count(context, s->context_tokens));
}

static void print_budget(const page *p, const facts *f)
{
    const ofl_budget *b = &f->budget;
    char total[32], one[32], two[32];
    scale s = scale_for(b->vram_bytes);
    ofl_source source = OFL_SOURCE_NONE;
    uint64_t weights = b->resident_bytes + b->ring_bytes, runtime = b->activation_bytes + b->runtime_bytes;
    printf("\ndevice memory, %s\n", cli_show_bytes(total, b->vram_bytes, 0));
    start_bar(f, "weights", weights, s);
    printf("%s resident", scaled(one, s, b->resident_bytes));
    if (b->ring_bytes > 0) printf(" + %s ring", scaled(two, s, b->ring_bytes));
    printf("\n");
    start_bar(f, "KV cache", b->kv_bytes, s);
    print_kv_words(f);
    start_bar(f, "runtime", runtime, s);
    (void)ofl_machine_get(p->machine, OFL_FIGURE_RUNTIME, &source);
    printf("temporaries %s, driver, libraries %s%s\n", scaled(one, s, b->activation_bytes), scaled(two, s, b->runtime_bytes),
           source == OFL_SOURCE_ASSUMED ? " (assumed)" : "");
    start_bar(f, "headroom", b->headroom_bytes, s);
    printf("%.3g %%, kept free\n", 100 * (double)b->headroom_bytes / (double)b->vram_bytes);
    if (b->vram_bytes - b->total_bytes < b->vram_bytes / 200) return;
    start_bar(f, "not used", b->vram_bytes - b->total_bytes, s);
    printf("%s\n", p->layers_forced      ? "left so by --resident-layers"
                   : b->ring_bytes > 0 ? "too little for another part of the weights"
                                       : "the model and its KV need no more");
}

static void print_layers(const facts *f)
{
    printf("  %-9s  ", "layers");
    size_t each = show_strip(f->layer_share, f->blocks, STRIP_CELLS);
    if (f->head_share >= 0) printf(" head %s", show_level(f->head_share));
    printf("\n%13sone mark ", "");
    if (each > 1) printf("for %zu layers", each);
    else printf("a layer");
    printf(", by its resident share: █ all, · nothing%s\n", f->head_share >= 0 ? "; head: the output matrix" : "");
}

/* One line of what the host holds. */
static void print_held(const char *name, uint64_t bytes, scale s, const char *words)
{
    char size[32];
    if (bytes > 0) printf("  %-9s  %6s %s  %s\n", name, scaled(size, s, bytes), s.unit, words);
}

static void print_host(const page *p, const facts *f)
{
    char all[32];
    ofl_source source = OFL_SOURCE_NONE;
    uint64_t bytes = f->lookup_host_bytes + f->streamed[OFL_TIER_PINNED] + f->streamed[OFL_TIER_PAGEABLE];
    scale s = scale_for(bytes > f->streamed[OFL_TIER_FILE] ? bytes : f->streamed[OFL_TIER_FILE]);
    (void)ofl_machine_get(p->machine, OFL_FIGURE_HOST, &source);
    if (bytes + f->streamed[OFL_TIER_FILE] == 0) return;
    printf("host memory, %s needed%s\n", cli_show_bytes(all, bytes, 0),
           source == OFL_SOURCE_ASSUMED ? " (assumed to be there; --host-ram SIZE plans for what there is)" : "");
    print_held("streamed", f->streamed[OFL_TIER_PINNED], s, "pinned (page-locked): copied to the device in every step");
    print_held("streamed", f->streamed[OFL_TIER_PAGEABLE], s, "pageable: the same, slower, since no more can be pinned");
    print_held("streamed", f->streamed[OFL_TIER_FILE], s, "from the file in every step: not in host memory, for lack of it");
    print_held("looked up", f->lookup_host_bytes, s, "embedding: a step reads a few rows of it");
}

/* What the words mean that the buckets use. */
static void print_terms(const facts *f)
{
    if (f->budget.stream_bytes_per_step == 0) (void)puts("resident: stays on the device; here all weights do");
    else (void)puts("resident: stays on the device. streamed: copied there in each step; the ring is where copies arrive.");
    (void)puts("step: one pass over the model, which gives every sequence one token.");
}

static bool file_rate_is_assumed(const page *p)
{
    ofl_source source = OFL_SOURCE_NONE;
    (void)ofl_machine_get(p->machine, OFL_FIGURE_FILE, &source);
    return source == OFL_SOURCE_ASSUMED;
}

static void print_forecast(const page *p, const facts *f)
{
    char tokens[32], step[32], link[32], compute[32], bound[32], first[32], context[32], label[32], words[256];
    const ofl_forecast *c = &f->forecast;
    (void)snprintf(label, sizeof label, "%u sequence%s   ", c->sequences, c->sequences == 1 ? "" : "s");
    (void)snprintf(words, sizeof words, "%s tokens/s ±%.0f %%, step %s, %s-bound: copying %s, computing %s",
                   cli_show_tokens(tokens, c->tokens_per_second), c->error_band_percent, cli_show_seconds(step, c->step.step_seconds),
                   c->link_bound ? "link" : "compute", cli_show_seconds(link, c->step.link_seconds),
                   cli_show_seconds(compute, c->step.compute_seconds));
    printf("\n");
    show_wrapped(label, words);
    printf("lower bound  %s a step: no layout in this memory can be faster\n", cli_show_seconds(bound, c->lower_bound_seconds));
    if (*ofl_plan_above_bound_why(p->plan) != '\0') show_wrapped("             ", ofl_plan_above_bound_why(p->plan));
    (void)snprintf(words, sizeof words, "about %s, once%s: reading and page-locking", cli_show_seconds(bound, c->load_seconds),
                   file_rate_is_assumed(p) ? " (the file's rate is assumed)" : "");
    show_wrapped("loading      ", words);
    printf("first token  %s after a prompt that fills the context of %s tokens\n", cli_show_seconds(first, c->first_token_seconds),
           cli_show_count(context, f->settings.context_tokens));
}

/* What the knee is, and where. */
static void print_knee(const facts *f, const curve *c)
{
    char sentence[256], knee[32], most[32];
    if (f->forecast.knee_tokens == 0) return;
    (void)cli_show_count(knee, f->forecast.knee_tokens);
    (void)cli_show_count(most, (uint64_t)c->points[c->count - 1].x);
    if (curve_shows_knee(c))
        (void)snprintf(sentence, sizeof sentence,
                       "▲ at %s tokens a step: from there computing takes longer than copying, and more sequences gain little", knee);
    else if (c->knee < c->points[0].x)
        (void)snprintf(sentence, sizeof sentence, "%s tokens a step: from there computing takes longer than copying", knee);
    else
        (void)snprintf(sentence, sizeof sentence,
                       "at %s tokens a step computing would take as long as copying; at most %s sequences fit", knee, most);
    show_wrapped("knee       ", sentence);
}

static void print_curve(const facts *f)
{
    const curve c = facts_curve(f);
    if (c.count == 0) return;
    printf("\n");
    if (curve_drawn(&c)) curve_print(&c);
    print_knee(f, &c);
    if (f->forecast.knee_tokens == 0)
        show_wrapped("knee       ", "none: nothing is streamed; --sweep sequences=1..64 shows what more sequences at once bring");
    printf("\n");
}

static void print_advice(const page *p)
{
    uint32_t count = ofl_plan_advice_count(p->plan);
    if (count > 0) (void)puts("what would help most:");
    for (uint32_t i = 0; i < count; i++) show_wrapped("  - ", ofl_plan_advice(p->plan, i));
}

/* Options that give what is only assumed, "--link, --device-flops"; empty: nothing is. */
static void list_assumed(const page *p, char *buffer, size_t room)
{
    static const struct { ofl_figure figure; const char *option; } rates[] = {{OFL_FIGURE_LINK, "--link"},
                                                                              {OFL_FIGURE_DEVICE_FLOPS, "--device-flops"},
                                                                              {OFL_FIGURE_DEVICE_BANDWIDTH, "--device-bandwidth"}};
    size_t used = 0;
    buffer[0] = '\0';
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        ofl_source source = OFL_SOURCE_NONE;
        (void)ofl_machine_get(p->machine, rates[i].figure, &source);
        if (source == OFL_SOURCE_ASSUMED)
            used += (size_t)snprintf(buffer + used, room - used, "%s%s", used > 0 ? ", " : "", rates[i].option);
    }
}

/* The options that a reader of this page wants next. */
static void print_next(const page *p, const facts *f)
{
    char names[96], words[256];
    list_assumed(p, names, sizeof names);
    (void)puts("next:");
    if (names[0] != '\0') {
        (void)snprintf(words, sizeof words, "give what is assumed: %s; or measure, where the card is: --device cuda:0", names);
        show_wrapped("  - ", words);
    }
    if (f->settings.objective == OFL_LATENCY && f->budget.stream_bytes_per_step > 0)
        show_wrapped("  - ", "many prompts and no hurry: --objective throughput");
    show_wrapped("  - ", "other ways to run it, side by side: --compare; what a speed would take: --want 5tok/s");
    show_wrapped("  - ",
                 "other sizes: --sweep vram=8GB..24GB in place of --vram; also of context, sequences and link; as a drawing: --svg FILE");
}

/* A note, formatted and wrapped. */
static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    show_wrapped("note: ", text);
}

static void print_experts(const facts *f)
{
    char stored[32], read[32];
    if (f->expert_bytes == 0) return;
    note("%u experts, %u of them used by a token: of their %s a step reads about %s (if tokens choose evenly: modelled); the forecast "
         "counts what this engine does, which copies every expert that is not resident in every step",
         f->experts, f->experts_used, cli_show_bytes(stored, f->expert_bytes, 0), cli_show_bytes(read, f->expert_bytes_read, 0));
}

static void print_notes(const page *p, const facts *f)
{
    char context[32], trained[32];
    if (!p->context_given && f->trained_context > f->settings.context_tokens)
        note("a context of %s tokens is the default; --context takes more, the model was trained for up to %s",
             cli_show_count(context, f->settings.context_tokens), cli_show_count(trained, f->trained_context));
    print_experts(f);
    for (uint32_t i = 0; i < ofl_model_note_count(p->model); i++) note("%s", ofl_model_note(p->model, i));
    for (uint32_t i = 0; i < ofl_machine_note_count(p->machine); i++) note("%s", ofl_machine_note(p->machine, i));
    if (!runnable_architecture(ofl_model_architecture(p->model)))
        note("%s can be planned, it cannot be run by ofload-batch (which runs %s)", ofl_model_architecture(p->model), runnable_names());
}

ofl_status page_print(const page *p)
{
    facts f;
    ofl_status status = facts_collect(p->model, p->plan, &f);
    if (status != OFL_OK) return status;
    status = head_print(p->model, p->machine, &f, OFL_FIGURE_COUNT);
    if (status == OFL_OK) {
        print_budget(p, &f);
        print_layers(&f);
        print_host(p, &f);
        print_terms(&f);
        print_forecast(p, &f);
        print_curve(&f);
        print_advice(p);
        print_next(p, &f);
        print_notes(p, &f);
    }
    facts_free(&f);
    return status;
}
