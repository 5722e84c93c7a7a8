/* The ways as a table, and below it what each needs and costs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/show.h"
#include "plan/ways.h"

static ofl_source worst(const way *w, const ofl_figure *figures, size_t count)
{
    ofl_source source = OFL_SOURCE_NONE;
    for (size_t i = 0; i < count; i++) {
        ofl_source one = w->sources[figures[i]];
        if (one != OFL_SOURCE_NONE && (source == OFL_SOURCE_NONE || one < source)) source = one;
    }
    return source;
}

/* "link+CPU given, compute assumed" */
static void put_sources(const way *w)
{
    static const struct {
        const char *name;
        ofl_figure figures[3];
        size_t count;
    } groups[] = {{"link", {OFL_FIGURE_LINK, OFL_FIGURE_LINK_PAGEABLE, OFL_FIGURE_FILE}, 3},
                  {"GPUs", {OFL_FIGURE_PEER}, 1},
                  {"CPU", {OFL_FIGURE_HOST_BANDWIDTH, OFL_FIGURE_HOST_FLOPS}, 2},
                  {"compute", {OFL_FIGURE_DEVICE_BANDWIDTH, OFL_FIGURE_DEVICE_FLOPS}, 2}};
    bool first = true;
    for (ofl_source source = OFL_SOURCE_MEASURED; source > OFL_SOURCE_NONE; source--) {
        int named = 0;
        for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
            if (worst(w, groups[i].figures, groups[i].count) != source) continue;
            printf("%s%s", named > 0 ? "+" : first ? "" : ", ", groups[i].name);
            named++;
        }
        if (named > 0) printf(" %s", ofl_source_name(source));
        first = first && named == 0;
    }
}

static void put_row(const way *w, uint32_t number)
{
    char text[64], one[32], two[32];
    (void)snprintf(text, sizeof text, "%3u  ", number);
    show_left(text, 5);
    show_left(w->title, 29);
    if (w->job.tokens_per_second <= 0) {
        printf("  no forecast: %s\n", w->why);
        return;
    }
    (void)snprintf(text, sizeof text, "%s ±%.0f %%", cli_show_tokens(one, w->job.tokens_per_second), w->error_percent);
    show_right(text, 14);
    show_right(cli_show_count(one, w->job.sequences), 8);
    show_right(cli_show_seconds(one, w->job.step_seconds), 9);
    if (w->queue.tokens_per_second > 0)
        (void)snprintf(text, sizeof text, "%s (%s)", cli_show_tokens(one, w->queue.tokens_per_second),
                       cli_show_count(two, w->queue.sequences));
    else (void)snprintf(text, sizeof text, "-");
    show_right(text, 15);
    show_right(cli_show_bytes(one, w->device_bytes, 0), 10);
    show_right(cli_show_bytes(one, w->host_bytes, 0), 10);
    printf("  ");
    show_left(w->kept ? "kept" : "fewer", 7);
    put_sources(w);
    printf("\n");
}

static void put_notes(const way *w, uint32_t number)
{
    printf("%3u  %s\n", number, w->title);
    if (w->needs[0] != '\0') show_wrapped("     needs   ", w->needs);
    if (w->costs[0] != '\0') show_wrapped("     costs   ", w->costs);
    if (w->command != NULL) printf("     plan    %s\n", w->command);
}

void compare_page(const compare_job *job, const ways *list)
{
    ofl_plan_settings s = {.struct_size = sizeof s};
    char context[32];
    ofl_budget b = {.struct_size = sizeof b};
    (void)ofl_plan_settings_get(job->plan, &s);
    (void)ofl_plan_budget_get(job->plan, &b);
    bool latency = job->workload->objective != OFL_THROUGHPUT;
    if (b.stream_bytes_per_step == 0) printf("\nnothing is streamed: no way out is needed");
    printf("\nthe ways out, for %u sequence%s of %s tokens; %s first, what needs other hardware or has no forecast last\n", s.sequences,
           s.sequences == 1 ? "" : "s", cli_show_count(context, s.context_tokens), latency ? "the shortest step" : "the most tokens/s");
    printf("     ");
    show_left("", 29);
    show_right("tokens/s", 14);
    show_right("at once", 8);
    show_right("step", 9);
    show_right("long queue", 15);
    show_right("device", 10);
    show_right("host", 10);
    printf("  bits   rates\n");
    for (uint32_t i = 0; i < list->count; i++) put_row(&list->rows[i], i + 1);
    printf("\n");
    for (uint32_t i = 0; i < list->count; i++) put_notes(&list->rows[i], i + 1);
    show_wrapped(
        "note: ",
        "tokens/s are forecasts (modelled); \"long queue\" is with as many sequences at once as in brackets; \"device\" is the memory of "
        "each GPU, headroom left out; \"bits\" are those of weights and KV: kept, or fewer with other answers; compute of ways that "
        "other programs run is what this machine's rates allow");
}
