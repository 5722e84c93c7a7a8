/* A model that is no model, for tests of whole batch runs. One id per byte, 256 ends an answer. What it says is in the prompt: after '#' stand the
 * bytes of the answer, and then it ends; without '#' it goes on for ever with letters that depend on all that came before. A '~' at
 * the prompt's beginning makes it give no finite number for the third token. It fails the test when a sequence's tokens do not follow one another. */
#ifndef OFLOAD_TEST_STUB_MODEL_H
#define OFLOAD_TEST_STUB_MODEL_H

#include <math.h>

#include "support/made_plan.h"

#include "batch/output.h"
#include "batch/run.h"
#include "common/cli.h"

enum { STUB_END = 256, STUB_VOCABULARY = 260, STUB_SLOTS = 8, STUB_HISTORY = 4096 };

typedef struct stub stub;
struct stub {
    ofl_plan plan;
    int32_t history[STUB_SLOTS][STUB_HISTORY];
    uint32_t length[STUB_SLOTS], prompt[STUB_SLOTS];
    float logits[STUB_SLOTS * STUB_VOCABULARY];
    uint64_t scratch[STUB_VOCABULARY];
    double clock;
    double pace;        /* measured ÷ estimated */
    double link_pace, compute_pace; /* the same of copies and of compute alone */
    void (*before_step)(struct stub *s); /* may change the paces; NULL: nothing */
    double waited, streamed; /* by the step that ran last */
    uint32_t steps, loads, sleep_us;
    backend_load load;
    int fail_at_step;   /* 0: never */
    int stop_at_step;   /* 0: never */
    int stop_status;
};

static stub the_stub;

ofl_status ofl_plan_forecast_get(const ofl_plan *plan, ofl_forecast *out)
{
    (void)plan;
    ofl_forecast f = {.error_band_percent = 5};
    return ofl_struct_out(out, &f, sizeof f, "forecast");
}

static ofl_status stub_encode(void *context, const request *r, token_list *out)
{
    (void)context;
    for (size_t m = 0; m < (r->chat ? r->message_count : 1); m++) {
        const char *text = r->chat ? r->messages[m].content : r->prompt;
        size_t bytes = r->chat ? r->messages[m].bytes : strlen(r->prompt);
        if (strstr(text, "no template for this") != NULL) return app_fail(OFL_ERROR_ARGUMENT, "the template takes no such text");
        for (size_t i = 0; i < bytes; i++) {
            if (tokens_push(out, (unsigned char)text[i]) != OFL_OK) return OFL_ERROR_HOST_MEMORY;
        }
    }
    return OFL_OK;
}

static const char *stub_bytes(void *context, int32_t id, size_t *bytes_out)
{
    (void)context;
    static char byte[256][2];
    *bytes_out = id < 256;
    if (id >= 256) return "";
    byte[id][0] = (char)id;
    return byte[id];
}

static bool stub_is_end(void *context, int32_t id) { return context != NULL && id == STUB_END; }

static ofl_status stub_plan(void *context, const backend_load *load, const ofl_plan **out)
{
    stub *s = context;
    s->load = *load;
    *out = &s->plan;
    return OFL_OK;
}

static ofl_status stub_load(void *context)
{
    ((stub *)context)->loads++;
    return OFL_OK;
}

static int32_t stub_next(const stub *s, uint32_t slot)
{
    const int32_t *history = s->history[slot];
    uint32_t made = s->length[slot] - s->prompt[slot], seen = 7;
    for (uint32_t i = 0; i < s->prompt[slot]; i++) {
        if (history[i] != '#') continue;
        uint32_t at = i + 1 + made;
        return at < s->prompt[slot] ? history[at] : STUB_END;
    }
    for (uint32_t i = 0; i < s->length[slot]; i++) seen = seen * 31 + (uint32_t)history[i];
    return 'a' + (int32_t)(seen % 26);
}

static bool stub_is_broken(const stub *s, uint32_t slot)
{
    return s->prompt[slot] > 0 && s->history[slot][0] == '~' && s->length[slot] - s->prompt[slot] == 2;
}

static ofl_status stub_step(void *context, const ofl_step *step, const int32_t *tokens, row_choice *rows)
{
    stub *s = context;
    float *row = s->logits;
    ofl_step_estimate estimate = {.struct_size = sizeof estimate};
    s->steps++;
    if (s->before_step != NULL) s->before_step(s);
    if (s->fail_at_step != 0 && (int)s->steps == s->fail_at_step) return app_fail(OFL_ERROR_DEVICE_LOST, "the device is gone: unplugged; plug it in");
    for (uint32_t i = 0; i < step->item_count; i++) {
        const ofl_step_item *item = &step->items[i];
        if (item->first_position == 0) s->length[item->slot] = s->prompt[item->slot] = 0;
        if (item->first_position != s->length[item->slot] || item->slot >= STUB_SLOTS || s->length[item->slot] + item->token_count > STUB_HISTORY) abort();
        memcpy(s->history[item->slot] + s->length[item->slot], tokens, item->token_count * sizeof *tokens);
        s->length[item->slot] += item->token_count;
        if (item->prefill) s->prompt[item->slot] += item->token_count;
        tokens += item->token_count;
        if (!item->wants_logits) continue;
        for (uint32_t v = 0; v < STUB_VOCABULARY; v++) row[v] = v <= STUB_END ? 0 : 99;
        row[stub_next(s, item->slot)] = 30;
        if (stub_is_broken(s, item->slot)) {
            for (uint32_t v = 0; v < STUB_VOCABULARY; v++) row[v] = v % 2 == 0 ? NAN : INFINITY;
        }
        row += STUB_VOCABULARY;
    }
    assert_ok(ofl_plan_estimate_step(&s->plan, &step->shape, &estimate));
    double link = estimate.link_seconds * s->link_pace, compute = estimate.compute_seconds * s->compute_pace, longer = link > compute ? link : compute;
    s->waited = longer - compute;
    s->streamed = 1e9 * estimate.link_seconds; /* at 1 GB/s as planned */
    s->clock += longer * s->pace;
    choose_rows(rows, (uint32_t)(row - s->logits) / STUB_VOCABULARY, s->logits, STUB_VOCABULARY, STUB_END + 1, s->scratch);
    return OFL_OK;
}

static void stub_last_step(void *context, backend_step *out)
{
    const stub *s = context;
    *out = (backend_step){s->streamed, s->waited};
}

static double stub_now(void *context) { return ((stub *)context)->clock; }

static void stub_figures(void *context, backend_figures *out)
{
    (void)context;
    *out = (backend_figures){1000, 3000, 2000, 0, 0, 0, 0, "stub", true};
}

static int stub_stop(void) { return the_stub.stop_at_step != 0 && (int)the_stub.steps >= the_stub.stop_at_step ? the_stub.stop_status : 0; }

static backend stub_backend(void)
{
    the_stub = (stub){.plan = made_plan(4, 36, 32, 16, 4 * 512), .pace = 1, .link_pace = 1, .compute_pace = 1};
    return (backend){.context = &the_stub,
                     .model_name = "stub",
                     .model_identity = "0123456789abcdef",
                     .weights_hash = "fedcba9876543210",
                     .compute = "f32",
                     .kv_type = "f32",
                     .chat_template = "by the model",
                     .usable_ids = STUB_END + 1,
                     .context_limit = 512,
                     .encode = stub_encode,
                     .bytes = stub_bytes,
                     .is_end = stub_is_end,
                     .plan = stub_plan,
                     .load = stub_load,
                     .step = stub_step,
                     .now = stub_now,
                     .last_step = stub_last_step,
                     .figures = stub_figures};
}

static run_settings stub_settings(const char *from, const char *to)
{
    return (run_settings){.input = from, .output = to, .max_tokens_default = 20, .shard = {0, 1}, .quiet = true, .stop = stub_stop};
}

#endif
