/* The page, line by line: device memory as bars, layers as a strip, the forecast and what would help. */
#include "plan/page.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/cli.h"
#include "common/runnable.h"
#include "common/show.h"
#include "plan/page_facts.h"

#define BAR_CELLS 40
#define STRIP_CELLS 100

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

static void print_model(const page *p, const facts *f)
{
    char parameters[32], bytes[32], name[24];
    size_t length = 0;
    for (; f->main_type[length] != '\0' && length + 1 < sizeof name; length++) {
        char letter = f->main_type[length];
        name[length] = (char)(letter >= 'A' && letter <= 'Z' ? letter + 32 : letter);
    }
    name[length] = '\0';
    if (f->parameters >= 1e9) (void)snprintf(parameters, sizeof parameters, "%.2f B", f->parameters / 1e9);
    else (void)snprintf(parameters, sizeof parameters, "%.1f M", f->parameters / 1e6);
    printf("%s  %s, %u layers, %s parameters, %s%s, %s\n", ofl_model_name(p->model), ofl_model_architecture(p->model), f->blocks,
           parameters, f->one_type ? "" : "mostly ", name, cli_show_bytes(bytes, f->weight_bytes, 0));
}

static const char *said(ofl_source source) { return source == OFL_SOURCE_GIVEN ? "as given" : ofl_source_name(source); }

static void print_machine(const page *p)
{
    char vram[32], link[32];
    ofl_source vram_source, link_source, flops_source;
    double flops = ofl_machine_get(p->machine, OFL_FIGURE_DEVICE_FLOPS, &flops_source);
    (void)cli_show_bytes(vram, (uint64_t)ofl_machine_get(p->machine, OFL_FIGURE_VRAM, &vram_source), 0);
    (void)cli_show_rate(link, ofl_machine_get(p->machine, OFL_FIGURE_LINK, &link_source));
    printf("%s%s: ", ofl_machine_simulated(p->machine) ? "simulated device " : "", ofl_machine_device(p->machine));
    if (vram_source == link_source) printf("%s and %s %s", vram, link, said(vram_source));
    else printf("%s %s, link %s %s", vram, said(vram_source), link, said(link_source));
    if (flops >= 1e12) printf("; compute %s from %.3g TFLOP/s\n", ofl_source_name(flops_source), flops / 1e12);
    else printf("; compute %s from %.3g GFLOP/s\n", ofl_source_name(flops_source), flops / 1e9);
}

static void start_bar(const facts *f, const char *name, uint64_t bytes, scale s)
{
    char size[32];
    printf("  %-9s  ", name);
    show_bar((double)bytes / (double)f->budget.vram_bytes, BAR_CELLS);
    printf("  %6s %s  ", scaled(size, s, bytes), s.unit);
}

static void print_kv_words(const page *p, const facts *f)
{
    char tokens[32], context[32], trained[32];
    const ofl_plan_settings *s = &f->settings;
    printf("%s tokens, ", cli_show_count(tokens, s->context_tokens * s->sequences));
    if (s->sequences == 1) printf("one sequence of %s", cli_show_count(context, s->context_tokens));
    else printf("%u sequences of %s", s->sequences, cli_show_count(context, s->context_tokens));
    if (!p->context_given && f->trained_context > s->context_tokens)
        printf(" (a default; trained for up to %s)", cli_show_count(trained, f->trained_context));
    printf("\n");
}

static void print_budget(const page *p, const facts *f)
{
    const ofl_budget *b = &f->budget;
    char total[32], one[32], two[32];
    scale s = scale_for(b->vram_bytes);
    uint64_t weights = b->resident_bytes + b->ring_bytes, runtime = b->activation_bytes + b->runtime_bytes;
    printf("\ndevice memory, %s\n", cli_show_bytes(total, b->vram_bytes, 0));
    start_bar(f, "weights", weights, s);
    printf("%s resident + %s ring\n", scaled(one, s, b->resident_bytes), scaled(two, s, b->ring_bytes));
    start_bar(f, "KV", b->kv_bytes, s);
    print_kv_words(p, f);
    start_bar(f, "runtime", runtime, s);
    printf("activations %s, driver and libraries %s\n", scaled(one, s, b->activation_bytes), scaled(two, s, b->runtime_bytes));
    start_bar(f, "headroom", b->headroom_bytes, s);
    printf("%.3g %%\n", 100 * (double)b->headroom_bytes / (double)b->vram_bytes);
    if (b->vram_bytes - b->total_bytes < b->vram_bytes / 200) return;
    start_bar(f, "not used", b->vram_bytes - b->total_bytes, s);
    printf("%s\n", p->layers_forced      ? "left so by --resident-layers"
                   : b->ring_bytes > 0 ? "too little for another part of the weights"
                                       : "the model and its KV need no more");
}

static void print_layers(const facts *f)
{
    double resident = 0;
    for (uint32_t i = 0; i < f->blocks; i++) resident += f->layer_share[i];
    printf("  %-9s  ", "layers");
    size_t each = show_strip(f->layer_share, f->blocks, STRIP_CELLS);
    if (each > 1) printf("  each mark: %zu layers", each);
    printf("  share resident per layer%s", f->head_share >= 0 ? ", head " : "");
    if (f->head_share >= 0) printf("%s", f->head_share > 0 ? show_level(f->head_share) : "streamed");
    printf("%s\n", resident == f->blocks && f->head_share != 0 ? "; all resident" : "");
}

static void print_host(const facts *f)
{
    static const char *const words[] = {"", "pinned", "pageable", "from the file"};
    char size[32];
    const char *before = "";
    printf("  %-9s  ", "host");
    if (f->lookup_host_bytes > 0) {
        printf("embedding %s (looked up by row)", cli_show_bytes(size, f->lookup_host_bytes, 0));
        before = ", ";
    }
    for (int tier = OFL_TIER_PINNED; tier <= OFL_TIER_FILE; tier++) {
        if (f->streamed[tier] == 0) continue;
        printf("%sstreamed %s %s", before, cli_show_bytes(size, f->streamed[tier], 0), words[tier]);
        before = ", ";
    }
    printf("%s\n", *before == '\0' ? "nothing" : "");
}

/* Three significant digits, "0.466", "1.00", "24.9"; whole from 100 on, "1,650". */
static char *show_tokens(char *buffer, double tokens_per_second)
{
    int decimals = 1;
    if (tokens_per_second >= 99.95) return cli_show_count(buffer, (uint64_t)(tokens_per_second + 0.5));
    for (double edge = 9.995; tokens_per_second < edge && decimals < 6; edge /= 10) decimals++;
    (void)snprintf(buffer, 32, "%.*f", decimals, tokens_per_second);
    return buffer;
}

static void print_forecast(const page *p, const facts *f)
{
    char tokens[32], step[32], link[32], compute[32], bound[32], first[32];
    const ofl_forecast *c = &f->forecast;
    double rate = ofl_machine_get(p->machine, OFL_FIGURE_LINK, NULL);
    double floor_seconds = fmax((double)f->budget.lower_bound_bytes_per_step / rate, c->step.compute_seconds);
    printf("\n%u sequence%s   %s tokens/s ±%.0f %%   step %s   %s-bound: ", c->sequences, c->sequences == 1 ? "" : "s",
           show_tokens(tokens, c->tokens_per_second), c->error_band_percent, cli_show_seconds(step, c->step.step_seconds),
           c->link_bound ? "link" : "compute");
    printf("link %s, compute %s, bound %s\n", cli_show_seconds(link, c->step.link_seconds),
           cli_show_seconds(compute, c->step.compute_seconds), cli_show_seconds(bound, floor_seconds));
    printf("first token  %s after a prompt that fills the context\n", cli_show_seconds(first, c->first_token_seconds));
}

static char *show_sequences(char *buffer, double sequences) { return cli_show_count(buffer, (uint64_t)sequences); }

/* One line of the table: "sequences    1     8 …". */
static void print_cells(const char *name, const char *key, const cJSON *rows, char *(*show)(char *buffer, double value))
{
    const cJSON *row;
    char cell[32];
    printf("%-10s", name);
    cJSON_ArrayForEach(row, rows) printf("%8s", show(cell, cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(row, key))));
}

static void print_table(const facts *f)
{
    char knee[32];
    if (cJSON_GetArraySize(f->by_sequences) > 0) {
        print_cells("sequences", "sequences", f->by_sequences, show_sequences);
        if (f->forecast.knee_tokens > 0) printf("  knee %s tokens a step", cli_show_count(knee, f->forecast.knee_tokens));
        printf("\n");
        print_cells("tokens/s", "tokens_per_second", f->by_sequences, show_tokens);
        printf("\n");
    }
    if (f->forecast.knee_tokens == 0) printf("no knee: nothing is streamed\n");
}

static void print_advice(const page *p)
{
    for (uint32_t i = 0; i < ofl_plan_advice_count(p->plan); i++)
        printf("%s%s\n", i == 0 ? "what would help most: " : "                      ", ofl_plan_advice(p->plan, i));
}

static void print_experts(const facts *f)
{
    char stored[32], read[32];
    if (f->expert_bytes == 0) return;
    printf("note: %u experts, %u used by a token: of %s a step reads about %s (even routing, modelled);\n"
           "      the forecast counts what this engine does: every expert that is not resident is copied in every step\n",
           f->experts, f->experts_used, cli_show_bytes(stored, f->expert_bytes, 0), cli_show_bytes(read, f->expert_bytes_read, 0));
}

static void print_words(const page *p, const facts *f)
{
    print_advice(p);
    print_experts(f);
    for (uint32_t i = 0; i < ofl_model_note_count(p->model); i++) printf("note: %s\n", ofl_model_note(p->model, i));
    if (!runnable_architecture(ofl_model_architecture(p->model)))
        printf("note: %s can be planned, it cannot be run by ofload-batch (which runs %s)\n", ofl_model_architecture(p->model),
               runnable_names());
}

ofl_status page_print(const page *p)
{
    facts f;
    ofl_status status = facts_collect(p->model, p->plan, &f);
    if (status != OFL_OK) return status;
    print_model(p, &f);
    print_machine(p);
    print_budget(p, &f);
    print_layers(&f);
    print_host(&f);
    print_forecast(p, &f);
    print_table(&f);
    print_words(p, &f);
    facts_free(&f);
    return OFL_OK;
}
