#include "plan/picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "plan/head.h"
#include "plan/svg.h"

#define LEFT 24.0
#define RIGHT (SVG_WIDTH - 24.0)
#define BAR_LEFT 110.0
#define BAR_WIDTH 470.0
#define PLOT_LEFT 124.0
#define PLOT_WIDTH (RIGHT - 30 - PLOT_LEFT)
#define PLOT_HEIGHT 200.0
#define LETTER 7.5 /* a digit's width, about */

/* A picture is drawn from above; `y` is where the next part goes. */
typedef struct picture { svg to; double y; } picture;

static ofl_status no_memory(void) { return app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory"); }

/* A line of text, which is freed. */
static bool put_owned(picture *p, const char *class_name, char *text)
{
    if (text == NULL) return false;
    svg_text(&p->to, class_name, "start", LEFT, p->y, text);
    free(text);
    p->y += 20;
    return true;
}

static ofl_status draw_head(picture *p, const ofl_model *model, const ofl_machine *machine, const facts *f, ofl_figure varied)
{
    svg_text(&p->to, "name", "start", LEFT, 38, ofl_model_name(model));
    p->y = 60;
    bool made = put_owned(p, "words", head_model(model, f)) && put_owned(p, "quiet", head_machine(machine)) &&
                put_owned(p, "quiet", head_figures(machine, varied));
    p->y += 14;
    return made ? OFL_OK : no_memory();
}

/* One bucket: up to two parts of the whole, then words. */
static void draw_bucket(picture *p, const facts *f, const char *name, const char *const classes[2], const uint64_t bytes[2],
                        const char *words)
{
    char size[32], line[160];
    double x = BAR_LEFT, whole = (double)f->budget.vram_bytes;
    svg_text(&p->to, "words", "start", LEFT, p->y + 13, name);
    svg_box(&p->to, "streamed", BAR_LEFT, p->y + 16, BAR_WIDTH, 1);
    for (int i = 0; i < 2 && classes[i] != NULL; i++) {
        double width = (double)bytes[i] / whole * BAR_WIDTH;
        if (bytes[i] > 0) svg_box(&p->to, classes[i], x, p->y, width < 1 ? 1 : width, 16);
        x += width;
    }
    (void)snprintf(line, sizeof line, "%s  %s", cli_show_bytes(size, bytes[0] + bytes[1], 0), words);
    svg_text(&p->to, "words", "start", BAR_LEFT + BAR_WIDTH + 14, p->y + 13, line);
    p->y += 25;
}

static void draw_buckets(picture *p, const facts *f)
{
    const ofl_budget *b = &f->budget;
    char line[160], one[32], two[32];
    (void)snprintf(line, sizeof line, "device memory, %s", cli_show_bytes(one, b->vram_bytes, 0));
    svg_text(&p->to, "words", "start", LEFT, p->y, line);
    p->y += 12;
    (void)snprintf(line, sizeof line, "resident %s, ring %s", cli_show_bytes(one, b->resident_bytes, 0),
                   cli_show_bytes(two, b->ring_bytes, 0));
    draw_bucket(p, f, "weights", (const char *const[2]){"resident", "ring"}, (const uint64_t[2]){b->resident_bytes, b->ring_bytes},
                b->ring_bytes > 0 ? line : "all resident");
    (void)snprintf(line, sizeof line, "%u × %s tokens", f->settings.sequences, cli_show_count(one, f->settings.context_tokens));
    draw_bucket(p, f, "KV cache", (const char *const[2]){"kv", NULL}, (const uint64_t[2]){b->kv_bytes, 0}, line);
    draw_bucket(p, f, "runtime", (const char *const[2]){"runtime", NULL}, (const uint64_t[2]){b->activation_bytes + b->runtime_bytes, 0},
                "temporaries, driver, libraries");
    draw_bucket(p, f, "headroom", (const char *const[2]){"headroom", NULL}, (const uint64_t[2]){b->headroom_bytes, 0}, "kept free");
    if (b->vram_bytes - b->total_bytes >= b->vram_bytes / 200)
        draw_bucket(p, f, "not used", (const char *const[2]){"streamed", NULL}, (const uint64_t[2]){b->vram_bytes - b->total_bytes, 0}, "");
    p->y += 22;
}

static void draw_layer(picture *p, double x, double width, double share)
{
    double gap = width > 6 ? 2 : 0.5, high = 44 * share;
    svg_box(&p->to, "streamed", x, p->y, width - gap, 44 - high);
    if (share > 0) svg_box(&p->to, "resident", x, p->y + 44 - high, width - gap, high);
}

/* Every layer as a column, filled from below by its resident share; the head at the end. */
static void draw_strip(picture *p, const facts *f)
{
    double width = (RIGHT - LEFT - 60) / (f->blocks > 0 ? f->blocks : 1), end = LEFT;
    if (width > 26) width = 26;
    svg_text(&p->to, "words", "start", LEFT, p->y, "layers, first to last: how much of each is resident");
    svg_box(&p->to, "resident", 400, p->y - 11, 12, 12);
    svg_text(&p->to, "quiet", "start", 418, p->y, "resident: stays on the device");
    svg_box(&p->to, "streamed", 630, p->y - 11, 12, 12);
    svg_text(&p->to, "quiet", "start", 648, p->y, "streamed: copied there in every step");
    p->y += 12;
    for (uint32_t i = 0; i < f->blocks; i++, end += width) draw_layer(p, end, width, f->layer_share[i]);
    if (f->head_share >= 0) {
        draw_layer(p, end + 10, 26, f->head_share);
        svg_text(&p->to, "quiet", "middle", end + 22, p->y + 60, "head");
    }
    p->y += 90;
}

static double plot_x(const curve *c, double x) { return PLOT_LEFT + curve_place(c, x) * PLOT_WIDTH; }

static double plot_y(const picture *p, const curve *c, double y)
{
    double top = curve_top(c);
    return p->y + PLOT_HEIGHT - (top > 0 ? y / top * PLOT_HEIGHT : 0);
}

static void draw_axes(picture *p, const curve *c)
{
    char text[32];
    for (int i = 0; i <= 2; i++) {
        double value = curve_top(c) * i / 2, y = plot_y(p, c, value);
        svg_line(&p->to, i == 0 ? "axis" : "grid", PLOT_LEFT, y, PLOT_LEFT + PLOT_WIDTH, y);
        svg_text(&p->to, "quiet", "end", PLOT_LEFT - 10, y + 4, i == 0 ? "0" : cli_show_tokens(text, value));
    }
    svg_text(&p->to, "quiet", "start", LEFT, p->y + PLOT_HEIGHT + 22, c->x_name);
    svg_text(&p->to, "quiet", "start", LEFT, p->y + PLOT_HEIGHT + 40, "tokens/s");
    if (!curve_shows_knee(c)) return;
    svg_line(&p->to, "knee", plot_x(c, c->knee), p->y - 6, plot_x(c, c->knee), p->y + PLOT_HEIGHT);
    svg_text(&p->to, "quiet", "end", plot_x(c, c->knee) - 6, p->y + 6, "knee");
}

/* The figures of a point below it; returns where they end, or `from` where there is no room for them. */
static double draw_figures(picture *p, const curve *c, const curve_point *at, double from, double until)
{
    char x[32], y[32] = "–";
    (void)c->show_x(x, at->x);
    if (at->mark != CURVE_NO_FIT) (void)cli_show_tokens(y, at->y);
    double width = LETTER * (double)(strlen(x) > strlen(y) ? strlen(x) : strlen(y)), middle = plot_x(c, at->x);
    if (middle - width / 2 < from || middle + width / 2 > until) return from;
    svg_text(&p->to, "words", "middle", middle, p->y + PLOT_HEIGHT + 22, x);
    svg_text(&p->to, "words", "middle", middle, p->y + PLOT_HEIGHT + 40, y);
    return middle + width / 2 + 10;
}

static void draw_points(picture *p, const curve *c)
{
    const curve_point *before = NULL, *last = &c->points[c->count - 1];
    char last_x[32];
    double from = 0, until = plot_x(c, last->x) - LETTER * (double)strlen(c->show_x(last_x, last->x)) / 2 - 10;
    for (size_t i = 0; i < c->count; i++) {
        const curve_point *at = &c->points[i];
        double x = plot_x(c, at->x), y = plot_y(p, c, at->y);
        bool fits = at->mark != CURVE_NO_FIT;
        if (fits && before != NULL) svg_line(&p->to, "curve", plot_x(c, before->x), plot_y(p, c, before->y), x, y);
        if (!fits) svg_text(&p->to, "words", "middle", x, p->y + PLOT_HEIGHT + 5, "×");
        from = draw_figures(p, c, at, from, at == last ? SVG_WIDTH : until);
        before = fits ? at : NULL;
    }
    for (size_t i = 0; i < c->count; i++) {
        const curve_point *at = &c->points[i];
        if (at->mark == CURVE_NO_FIT) continue;
        svg_dot(&p->to, at->mark == CURVE_COMPUTE ? "ring-dot" : "dot", plot_x(c, at->x), plot_y(p, c, at->y), 4);
    }
}

static void draw_curve(picture *p, const curve *c)
{
    p->y += 14;
    draw_axes(p, c);
    draw_points(p, c);
    p->y += PLOT_HEIGHT + 66;
}

static ofl_status finish(picture *p, ofl_status status, const char *title, char **text_out)
{
    char *text = svg_end(&p->to, p->y, title);
    if (status == OFL_OK && text == NULL) status = no_memory();
    if (status == OFL_OK) *text_out = text;
    else free(text);
    return status;
}

static void draw_forecast(picture *p, const facts *f)
{
    char line[256], tokens[32], step[32], knee[32];
    const ofl_forecast *c = &f->forecast;
    (void)snprintf(line, sizeof line, "forecast, not measured: %u sequence%s, %s tokens/s ±%.0f %%, a step takes %s, %s-bound",
                   c->sequences, c->sequences == 1 ? "" : "s", cli_show_tokens(tokens, c->tokens_per_second), c->error_band_percent,
                   cli_show_seconds(step, c->step.step_seconds), c->link_bound ? "link" : "compute");
    svg_text(&p->to, "words", "start", LEFT, p->y, line);
    p->y += 20;
    if (c->knee_tokens > 0)
        (void)snprintf(line, sizeof line, "knee: at %s tokens a step computing takes as long as copying",
                       cli_show_count(knee, c->knee_tokens));
    svg_text(&p->to, "quiet", "start", LEFT, p->y, c->knee_tokens > 0 ? line : "no knee: nothing is streamed");
    p->y += 8;
}

ofl_status picture_plan(const page *own, char **text_out)
{
    facts f;
    picture p;
    ofl_status status = facts_collect(own->model, own->plan, &f);
    if (status != OFL_OK) return status;
    status = svg_begin(&p.to);
    if (status == OFL_OK) {
        status = draw_head(&p, own->model, own->machine, &f, OFL_FIGURE_COUNT);
        const curve c = facts_curve(&f);
        draw_buckets(&p, &f);
        draw_strip(&p, &f);
        draw_forecast(&p, &f);
        if (curve_drawn(&c)) draw_curve(&p, &c);
        else p.y += 16;
        status = finish(&p, status, ofl_model_name(own->model), text_out);
    }
    facts_free(&f);
    return status;
}

ofl_status picture_sweep(const ofl_model *model, const ofl_machine *machine, const facts *f, ofl_figure varied, const curve *c,
                         const char *words, char **text_out)
{
    picture p;
    ofl_status status = svg_begin(&p.to);
    if (status != OFL_OK) return status;
    status = draw_head(&p, model, machine, f, varied);
    svg_text(&p.to, "words", "start", LEFT, p.y, words);
    p.y += 12;
    draw_curve(&p, c);
    svg_text(&p.to, "quiet", "start", LEFT, p.y, "filled: copying decides · hollow: computing decides · ×: does not fit");
    p.y += 22;
    return finish(&p, status, ofl_model_name(model), text_out);
}
