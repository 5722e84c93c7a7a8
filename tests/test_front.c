/* The front alone, over a plan that this file makes up: capacity, caps and a step time of its own. */
#include "support/made_plan.h"

static ofl_front *made_front(const ofl_plan *plan, ofl_admission admission)
{
    ofl_front *front;
    ofl_front_options options = {.struct_size = sizeof options, .admission = admission};
    assert_ok(ofl_front_create(plan, &options, &front));
    return front;
}

static uint64_t submit(ofl_front *front, uint32_t prompt, uint32_t answer, uint64_t tag)
{
    uint64_t id;
    ofl_request request = {sizeof request, prompt, answer, tag};
    assert_ok(ofl_front_submit(front, &request, &id));
    return id;
}

static void assert_near(double got, double wanted, double within)
{
    if (!(got > wanted - within && got < wanted + within)) fail_msg("%.9g instead of %.9g", got, wanted);
}

/* ---- random queues ---- */

enum { MOST_REQUESTS = 64, QUEUES = 10000 };
typedef struct expected {
    uint32_t prompt, answer, done, made, slot, submitted_at, admitted_at;
    bool admitted, started, finished, cancelled;
} expected;
/* The front, and beside it the same rules in plain words: who is admitted when is known before the front says so. */
typedef struct world {
    ofl_plan plan;
    ofl_front *front;
    ofl_admission admission;
    uint64_t seed;
    expected requests[MOST_REQUESTS];
    uint32_t count, admissions, appeared, rounds;
    uint32_t step; /* those committed */
    uint32_t sequences, cap, chunk; /* the plan's, or less */
    uint32_t running, blocks, blocks_free;
    int32_t *owner; /* (blocks): who holds it, or -1 */
} world;

static uint32_t between(world *w, uint32_t low, uint32_t high) { return low + (uint32_t)(test_random(&w->seed) % (high - low + 1)); }

static uint32_t blocks_of(const world *w, const expected *r)
{
    uint32_t block = w->plan.settings.kv_block_tokens;
    return (r->prompt + r->answer + block - 1) / block;
}

static int64_t steps_of(const world *w, const expected *r) { return r->answer + (r->prompt + w->chunk - 1) / w->chunk; }

/* Of two that wait, by their numbers: as front.h says. */
static bool comes_before(const world *w, uint32_t a, uint32_t b)
{
    const expected *first = &w->requests[a], *second = &w->requests[b];
    int64_t lead = w->admission == OFL_FIRST_COME
                       ? 0
                       : steps_of(w, first) - first->submitted_at - (steps_of(w, second) - second->submitted_at);
    return lead != 0 ? lead > 0 : a < b;
}

static bool waits(const expected *r) { return !r->admitted && !r->cancelled; }

static void admit_expected(world *w)
{
    while (w->running < w->sequences) {
        uint32_t next = MOST_REQUESTS;
        for (uint32_t r = 0; r < w->count; r++) {
            if (waits(&w->requests[r]) && (next == MOST_REQUESTS || comes_before(w, r, next))) next = r;
        }
        if (next == MOST_REQUESTS || blocks_of(w, &w->requests[next]) > w->blocks_free) return;
        w->requests[next].admitted = true;
        w->requests[next].admitted_at = w->admissions++;
        w->running++;
        w->blocks_free -= blocks_of(w, &w->requests[next]);
    }
}

static void retire_expected(world *w, const expected *r)
{
    w->running--;
    w->blocks_free += blocks_of(w, r);
}

static void check_blocks(world *w, const ofl_step *step)
{
    uint32_t blocks_free;
    for (uint32_t b = 0; b < w->blocks; b++) w->owner[b] = -1;
    for (uint32_t i = 0; i < step->item_count; i++) {
        const ofl_step_item *item = &step->items[i];
        assert_int_equal(item->block_count, blocks_of(w, &w->requests[item->tag]));
        for (uint32_t b = 0; b < item->block_count; b++) {
            assert_true(item->blocks[b] < w->blocks);
            assert_int_equal(w->owner[item->blocks[b]], -1);
            w->owner[item->blocks[b]] = (int32_t)item->tag;
        }
    }
    assert_ok(ofl_front_blocks_get(w->front, NULL, &blocks_free));
    assert_int_equal(blocks_free, w->blocks_free);
}

/* Admitted in the order expected, and after a wait that has an end: nobody is preferred who came later by more steps than the longest
 * request takes. */
static void check_start(world *w, expected *request, uint32_t slot)
{
    assert_true(request->admitted && request->admitted_at >= w->appeared);
    w->appeared = request->admitted_at + 1;
    request->started = true;
    request->slot = slot;
    uint32_t longest = w->blocks * w->plan.settings.kv_block_tokens;
    for (uint32_t r = 0; r < w->count; r++) {
        if (waits(&w->requests[r])) assert_true(request->submitted_at <= w->requests[r].submitted_at + longest);
    }
}

static void check_item(world *w, const ofl_step_item *item)
{
    expected *request = &w->requests[item->tag];
    assert_false(request->finished || request->cancelled);
    if (!request->started) check_start(w, request, item->slot);
    assert_int_equal(item->slot, request->slot);
    assert_true(item->slot < w->sequences);
    if (request->made > 0) {
        assert_int_equal(item->prefill, 0);
        assert_int_equal(item->token_count, 1);
        assert_int_equal(item->first_position, request->prompt + request->made - 1);
        assert_int_equal(item->wants_logits, 1);
    } else {
        assert_int_equal(item->prefill, 1);
        assert_int_equal(item->first_position, request->done);
        assert_true(item->token_count >= 1 && request->done + item->token_count <= request->prompt);
        assert_int_equal(item->wants_logits, request->done + item->token_count == request->prompt);
    }
}

static void check_shape(world *w, const ofl_step *step)
{
    uint32_t tokens = 0, rows = 0, prefill = 0, decoding = 0, prompts = 0;
    uint64_t kv = 0;
    for (uint32_t i = 0; i < step->item_count; i++) {
        const ofl_step_item *item = &step->items[i];
        for (uint32_t t = 0; t < item->token_count; t++) kv += item->first_position + t + 1;
        tokens += item->token_count;
        rows += item->wants_logits;
        prefill += item->prefill ? item->token_count : 0;
        if (!item->prefill) assert_int_equal(prefill, 0); /* decoding ones first */
        for (uint32_t j = 0; j < i; j++) assert_int_not_equal(item->slot, step->items[j].slot);
    }
    for (uint32_t r = 0; r < w->count; r++) {
        const expected *request = &w->requests[r];
        if (!request->admitted || request->finished || request->cancelled) continue;
        decoding += request->made > 0;
        prompts += request->prompt - request->done;
    }
    uint32_t room = w->cap - decoding < w->chunk ? w->cap - decoding : w->chunk;
    assert_int_equal(tokens - prefill, decoding);                 /* none waits a step */
    assert_int_equal(prefill, prompts < room ? prompts : room);   /* no room is left unused */
    assert_int_equal(step->shape.tokens, tokens);
    assert_int_equal(step->shape.logits_rows, rows);
    assert_int_equal(step->shape.kv_tokens, kv);
    assert_true(tokens <= w->cap && prefill <= w->chunk && rows <= w->sequences);
}

static void commit(world *w, const ofl_step *step)
{
    uint8_t finished[MOST_REQUESTS] = {0};
    ofl_step_item items[MOST_REQUESTS];
    memcpy(items, step->items, step->item_count * sizeof *items);
    for (uint32_t i = 0; i < step->item_count; i++) finished[i] = between(w, 0, 19) == 0;
    assert_ok(ofl_front_commit(w->front, finished, step->estimate.step_seconds));
    w->step++;
    for (uint32_t i = 0; i < step->item_count; i++) {
        expected *request = &w->requests[items[i].tag];
        if (items[i].prefill) request->done += items[i].token_count;
        request->made += items[i].wants_logits;
        if (request->cancelled) continue; /* in flight; retired below */
        request->finished = request->made == request->answer || (items[i].wants_logits && finished[i]);
        if (request->finished) retire_expected(w, request);
    }
}

/* One that runs keeps its blocks until the step in flight is committed. */
static expected *maybe_cancel(world *w)
{
    uint32_t which = between(w, 0, w->count - 1);
    expected *request = &w->requests[which];
    if (between(w, 0, 15) != 0) return NULL;
    if (request->finished || request->cancelled) {
        assert_status(ofl_front_cancel(w->front, which), OFL_ERROR_NOT_FOUND);
        return NULL;
    }
    assert_ok(ofl_front_cancel(w->front, which));
    request->cancelled = true;
    return request->admitted ? request : NULL;
}

/* Between two steps. */
static void maybe_limit(world *w)
{
    if (between(w, 0, 15) != 0) return;
    w->cap = between(w, w->sequences, w->plan.settings.tokens_per_step_cap);
    w->chunk = between(w, 1, w->plan.settings.prefill_chunk_tokens);
    assert_ok(ofl_front_limit(w->front, w->cap, w->chunk));
}

static void submit_random(world *w)
{
    uint32_t room = w->blocks * w->plan.settings.kv_block_tokens, prompt = between(w, 1, room - 1), answer = between(w, 1, room - prompt);
    if (between(w, 0, 3) != 0) prompt = 1 + prompt / 8, answer = 1 + answer / 8;
    w->requests[w->count] = (expected){.prompt = prompt, .answer = answer, .submitted_at = w->step};
    assert_int_equal(submit(w->front, prompt, answer, w->count), w->count);
    w->count++;
}

static void run_step(world *w, const ofl_step *step, uint32_t wanted)
{
    expected *dropped = NULL;
    admit_expected(w);
    for (uint32_t i = 0; i < step->item_count; i++) check_item(w, &step->items[i]);
    check_shape(w, step);
    check_blocks(w, step);
    if (w->count < wanted && between(w, 0, 3) == 0) submit_random(w);
    if (between(w, 0, 1)) dropped = maybe_cancel(w); /* in flight */
    if (between(w, 0, 7) == 0) assert_ok(ofl_front_abandon(w->front)); /* all of it comes again */
    else commit(w, step);
    if (dropped != NULL) retire_expected(w, dropped);
    maybe_limit(w);
    dropped = maybe_cancel(w);
    if (dropped != NULL) retire_expected(w, dropped);
    assert_true(++w->rounds < 100000);
}

/* A plan of any shape; for some queues less than it allows. */
static void make_world(world *w)
{
    uint32_t sequences = between(w, 1, 12), chunk = between(w, 1, 40), block = between(w, 1, 16), capacity = between(w, block + 1, 600);
    w->plan = made_plan(sequences, between(w, sequences, sequences + chunk), chunk, block, capacity < 2 ? 2 : capacity);
    const ofl_plan_settings *s = &w->plan.settings;
    ofl_front_options options = {.struct_size = sizeof options, .admission = w->admission};
    if (between(w, 0, 2) == 0) {
        options.max_sequences = between(w, 1, s->sequences);
        options.tokens_per_step_cap = between(w, 1, s->tokens_per_step_cap);
        options.prefill_chunk_tokens = between(w, 1, s->prefill_chunk_tokens);
        options.kv_capacity_tokens = capacity = between(w, block + 1, capacity);
    }
    assert_ok(ofl_front_create(&w->plan, &options, &w->front));
    w->cap = options.tokens_per_step_cap != 0 ? options.tokens_per_step_cap : s->tokens_per_step_cap;
    w->chunk = options.prefill_chunk_tokens != 0 ? options.prefill_chunk_tokens : s->prefill_chunk_tokens;
    w->sequences = options.max_sequences != 0 ? options.max_sequences : s->sequences;
    if (w->sequences > w->cap) w->sequences = w->cap;
    assert_ok(ofl_front_blocks_get(w->front, &w->blocks, &w->blocks_free));
    assert_int_equal(w->blocks, capacity / block);
    w->owner = calloc(w->blocks, sizeof *w->owner);
}

static void run_world(uint64_t seed, ofl_admission admission)
{
    world w = {.seed = seed, .admission = admission};
    make_world(&w);
    uint32_t wanted = between(&w, 1, MOST_REQUESTS), taken;
    while (w.count < (wanted + 1) / 2) submit_random(&w);
    for (;;) {
        ofl_step step = {.struct_size = sizeof step};
        ofl_status status = ofl_front_next_step(w.front, &step);
        if (status == OFL_END && w.count >= wanted) break;
        if (status == OFL_END) {
            submit_random(&w);
            continue;
        }
        assert_ok(status);
        run_step(&w, &step, wanted);
    }
    for (uint32_t r = 0; r < w.count; r++) assert_true(w.requests[r].finished || w.requests[r].cancelled);
    assert_ok(ofl_front_blocks_get(w.front, NULL, &taken));
    assert_int_equal(taken, w.blocks);
    ofl_front_destroy(w.front);
    free(w.owner);
}

static void test_random_queues(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < QUEUES; seed++) run_world(seed, seed % 2 == 0 ? OFL_LONGEST_FIRST : OFL_FIRST_COME);
}

/* Two long ones come for each that ends, so that there is always a longer one to prefer. */
static void test_a_short_request_does_not_starve(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 2; round++) {
        ofl_plan plan = made_plan(1, 17, 16, 16, 4096);
        ofl_front *front = made_front(&plan, round == 0 ? OFL_LONGEST_FIRST : OFL_FIRST_COME);
        uint32_t steps = 0, number = 0;
        bool started = false;
        (void)submit(front, 1, 100, number++);
        uint64_t shortest = submit(front, 1, 1, number++);
        for (; !started; steps++) {
            ofl_step step = {.struct_size = sizeof step};
            assert_ok(ofl_front_next_step(front, &step));
            started = step.items[0].request == shortest;
            if (steps % 100 == 0) (void)submit(front, 1, 100, number++), (void)submit(front, 1, 100, number++);
            assert_ok(ofl_front_commit(front, NULL, 0));
            assert_true(steps < 100 * 8);
        }
        ofl_front_destroy(front);
    }
}

/* ---- forecast ---- */

static void run_all(ofl_front *front, uint64_t *steps_out, double *estimated_out, uint64_t *made_out)
{
    ofl_step step = {.struct_size = sizeof step};
    ofl_status status;
    *steps_out = *made_out = 0;
    *estimated_out = 0;
    while ((status = ofl_front_next_step(front, &step)) == OFL_OK) {
        *made_out += step.shape.logits_rows;
        *estimated_out += step.estimate.step_seconds;
        ++*steps_out;
        assert_ok(ofl_front_commit(front, NULL, 0));
    }
    assert_int_equal(status, OFL_END);
}

static void forecast_is_played(uint64_t seed)
{
    world w = {.seed = seed};
    uint32_t sequences = between(&w, 1, 40), chunk = between(&w, 1, 256);
    w.plan = made_plan(sequences, between(&w, sequences, sequences + chunk), chunk, 16, between(&w, 2048, 60000));
    if (seed % 3 == 0) w.plan.link_seconds = 0; /* then the context counts */
    w.front = made_front(&w.plan, seed % 2 ? OFL_LONGEST_FIRST : OFL_FIRST_COME);
    uint32_t count = between(&w, 1, 300), cancelled = between(&w, 0, count - 1);
    uint64_t tokens = 0, steps, made;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t answer = between(&w, 1, 300);
        (void)submit(w.front, between(&w, 1, 1200), answer, i);
        if (i == cancelled) assert_ok(ofl_front_cancel(w.front, i));
        else tokens += answer;
    }
    ofl_front_forecast forecast = {.struct_size = sizeof forecast};
    double seconds;
    assert_ok(ofl_front_forecast_get(w.front, &forecast));
    run_all(w.front, &steps, &seconds, &made);
    assert_int_equal(forecast.new_tokens, tokens);
    assert_int_equal(made, tokens);
    assert_int_equal(forecast.steps, steps);
    assert_true(forecast.seconds > 0.98 * seconds && forecast.seconds < 1.02 * seconds);
    assert_true(forecast.correction == 1.0);
    assert_ok(ofl_front_forecast_get(w.front, &forecast));
    assert_int_equal(forecast.steps, 0);
    assert_int_equal(forecast.finished, count - 1);
    ofl_front_destroy(w.front);
}

static void test_forecast_equals_the_run(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) forecast_is_played(seed);
}

static void test_runs_of_like_steps_are_estimated_at_their_middle(void **state)
{
    (void)state;
    ofl_plan plan = made_plan(1, 129, 128, 16, 8192);
    plan.link_seconds = 0;
    ofl_front *front = made_front(&plan, OFL_FIRST_COME);
    uint64_t steps, made;
    double seconds;
    (void)submit(front, 4000, 4000, 0);
    ofl_front_forecast forecast = {.struct_size = sizeof forecast};
    assert_ok(ofl_front_forecast_get(front, &forecast));
    run_all(front, &steps, &seconds, &made);
    assert_int_equal(forecast.steps, steps);
    assert_near(forecast.seconds / seconds, 1, 0.005);
    ofl_front_destroy(front);
}

static void test_forecast_in_the_middle(void **state)
{
    (void)state;
    ofl_plan plan = made_plan(4, 20, 16, 16, 4096);
    ofl_front *front = made_front(&plan, OFL_FIRST_COME);
    for (uint32_t i = 0; i < 20; i++) (void)submit(front, 5 + 13 * i, 3 + i, i);
    for (uint32_t done = 0;; done++) {
        ofl_front_forecast now = {.struct_size = sizeof now};
        assert_ok(ofl_front_forecast_get(front, &now));
        ofl_step step = {.struct_size = sizeof step};
        ofl_status status = ofl_front_next_step(front, &step);
        if (status == OFL_END) {
            assert_int_equal(now.steps, 0);
            break;
        }
        ofl_front_forecast flying = {.struct_size = sizeof flying};
        assert_ok(ofl_front_forecast_get(front, &flying));
        assert_int_equal(flying.steps, now.steps); /* the one in flight is still to come */
        assert_ok(ofl_front_commit(front, NULL, 0));
        assert_ok(ofl_front_forecast_get(front, &flying));
        assert_int_equal(flying.steps, now.steps - 1);
    }
    ofl_front_destroy(front);
}

static void test_long_queue_is_cheap_to_forecast(void **state)
{
    (void)state;
    ofl_plan plan = made_plan(256, 768, 512, 16, 400000);
    ofl_front *front = made_front(&plan, OFL_FIRST_COME);
    uint64_t seed = 5;
    for (uint32_t i = 0; i < 50000; i++)
        (void)submit(front, 1 + (uint32_t)(test_random(&seed) % 700), 1 + (uint32_t)(test_random(&seed) % 500), i);
    ofl_front_forecast forecast = {.struct_size = sizeof forecast};
    plan.estimates = 0;
    assert_ok(ofl_front_forecast_get(front, &forecast));
    assert_true(forecast.steps > 40000);
    assert_true(plan.estimates < forecast.steps / 2);
    ofl_front_destroy(front);
}

static void test_measured_steps_correct_the_forecast(void **state)
{
    (void)state;
    ofl_plan plan = made_plan(2, 10, 8, 16, 4096);
    ofl_front *front = made_front(&plan, OFL_FIRST_COME);
    (void)submit(front, 4, 1000, 0);
    ofl_step step = {.struct_size = sizeof step};
    ofl_front_forecast f = {.struct_size = sizeof f};
    for (int i = 0; i < 400; i++) {
        double pace = i < 200 ? 1.5 : 0.8;
        assert_ok(ofl_front_next_step(front, &step));
        if (i == 0) assert_true(step.estimate.step_seconds == 0.05);
        assert_ok(ofl_front_commit(front, NULL, i == 7 ? 0 : pace * 0.05));
        assert_ok(ofl_front_forecast_get(front, &f));
        if (i == 0 || i == 199) assert_near(f.correction, 1.5, 1e-6);
    }
    assert_near(f.correction, 0.8, 1e-3);
    assert_near(f.seconds, (double)f.steps * 0.05 * f.correction, 1e-6);
    assert_ok(ofl_front_next_step(front, &step));
    assert_near(step.estimate.step_seconds, 0.05 * f.correction, 1e-9);
    assert_ok(ofl_front_relearn(front));
    assert_ok(ofl_front_commit(front, NULL, 0.1));
    assert_ok(ofl_front_forecast_get(front, &f));
    assert_near(f.correction, 2, 1e-9);
    ofl_front_destroy(front);
}

/* ---- single rules ---- */

static void test_what_can_never_run_is_refused_at_once(void **state)
{
    (void)state;
    ofl_plan plan = made_plan(4, 516, 512, 16, 1478 * 16 + 7);
    ofl_front *front = made_front(&plan, OFL_FIRST_COME);
    ofl_request request = {sizeof request, 23000, 648, 0};
    assert_ok(ofl_front_submit(front, &request, NULL));
    request.max_new_tokens = 649;
    assert_status(ofl_front_submit(front, &request, NULL), OFL_ERROR_NO_FIT);
    assert_int_equal(ofl_diagnostic_get()->bytes_needed, 23649);
    assert_int_equal(ofl_diagnostic_get()->bytes_available, 23648);
    assert_non_null(strstr(ofl_error_message(), "23649"));
    request.prompt_tokens = request.max_new_tokens = UINT32_MAX;
    assert_status(ofl_front_submit(front, &request, NULL), OFL_ERROR_NO_FIT);
    request.prompt_tokens = 0;
    assert_status(ofl_front_submit(front, &request, NULL), OFL_ERROR_ARGUMENT);
    request = (ofl_request){sizeof request, 1, 0, 0};
    assert_status(ofl_front_submit(front, &request, NULL), OFL_ERROR_ARGUMENT);
    ofl_front_destroy(front);
}

static void test_order_of_calls(void **state)
{
    (void)state;
    ofl_plan plan = made_plan(4, 20, 16, 16, 4096);
    ofl_front *front = made_front(&plan, OFL_FIRST_COME);
    ofl_step step = {.struct_size = sizeof step};
    assert_status(ofl_front_next_step(front, &step), OFL_END);
    assert_status(ofl_front_commit(front, NULL, 0), OFL_ERROR_STATE);
    (void)submit(front, 3, 3, 0);
    assert_ok(ofl_front_next_step(front, &step));
    assert_status(ofl_front_next_step(front, &step), OFL_ERROR_STATE);
    assert_ok(ofl_front_commit(front, NULL, 0));
    assert_status(ofl_front_commit(front, NULL, 0), OFL_ERROR_STATE);
    assert_status(ofl_front_cancel(front, 1), OFL_ERROR_NOT_FOUND);
    step.struct_size = 0;
    assert_status(ofl_front_next_step(front, &step), OFL_ERROR_ARGUMENT);
    step.struct_size = sizeof step;
    assert_ok(ofl_front_next_step(front, &step)); /* the failed call took nothing away */
    ofl_front_destroy(front);
}

static void test_limits_come_from_the_plan(void **state)
{
    (void)state;
    ofl_plan plan = made_plan(8, 24, 16, 16, 4096);
    ofl_front *front;
    ofl_front_options options = {.struct_size = sizeof options, .max_sequences = 9};
    assert_status(ofl_front_create(&plan, &options, &front), OFL_ERROR_ARGUMENT);
    options = (ofl_front_options){.struct_size = sizeof options, .tokens_per_step_cap = 25};
    assert_status(ofl_front_create(&plan, &options, &front), OFL_ERROR_ARGUMENT);
    options = (ofl_front_options){.struct_size = sizeof options, .max_sequences = 3, .tokens_per_step_cap = 2};
    assert_ok(ofl_front_create(&plan, &options, &front));
    for (uint32_t i = 0; i < 5; i++) (void)submit(front, 2, 4, i);
    ofl_step step = {.struct_size = sizeof step};
    uint32_t steps = 0;
    for (; ofl_front_next_step(front, &step) == OFL_OK; steps++) {
        assert_true(step.shape.tokens <= 2);
        assert_ok(ofl_front_commit(front, NULL, 0));
    }
    assert_true(steps >= 5 * 5 / 2);
    ofl_front_destroy(front);
    uint32_t blocks;
    options = (ofl_front_options){.struct_size = sizeof options, .kv_capacity_tokens = 4097};
    assert_status(ofl_front_create(&plan, &options, &front), OFL_ERROR_ARGUMENT);
    options.kv_capacity_tokens = 1000;
    assert_ok(ofl_front_create(&plan, &options, &front));
    assert_ok(ofl_front_blocks_get(front, &blocks, NULL));
    assert_int_equal(blocks, 1000 / 16);
    assert_status(ofl_front_limit(front, 25, 0), OFL_ERROR_ARGUMENT);
    assert_status(ofl_front_limit(front, 0, 17), OFL_ERROR_ARGUMENT);
    assert_status(ofl_front_limit(front, 7, 4), OFL_ERROR_ARGUMENT); /* eight may decode */
    (void)submit(front, 100, 1, 0);
    assert_ok(ofl_front_next_step(front, &step));
    assert_int_equal(step.shape.tokens, 16);
    assert_status(ofl_front_limit(front, 8, 4), OFL_ERROR_STATE);
    assert_ok(ofl_front_abandon(front));
    assert_status(ofl_front_abandon(front), OFL_ERROR_STATE);
    assert_ok(ofl_front_limit(front, 8, 4));
    assert_ok(ofl_front_limit(front, 0, 0)); /* as before */
    assert_ok(ofl_front_next_step(front, &step));
    assert_int_equal(step.shape.tokens, 4);
    assert_int_equal(step.items[0].first_position, 0);
    ofl_front_destroy(front);
}

static void test_longest_first(void **state)
{
    (void)state;
    ofl_plan plan = made_plan(1, 17, 16, 16, 4096);
    ofl_front *front = made_front(&plan, OFL_LONGEST_FIRST);
    (void)submit(front, 1, 5, 0);
    (void)submit(front, 1, 9, 1);
    (void)submit(front, 160, 2, 2); /* ten chunks */
    (void)submit(front, 1, 9, 3);
    static const uint64_t wanted[] = {2, 1, 3, 0};
    ofl_step step = {.struct_size = sizeof step};
    uint32_t seen = 0;
    while (ofl_front_next_step(front, &step) == OFL_OK) {
        if (step.items[0].prefill && step.items[0].first_position == 0) assert_int_equal(step.items[0].tag, wanted[seen++]);
        assert_ok(ofl_front_commit(front, NULL, 0));
    }
    assert_int_equal(seen, 4);
    ofl_front_destroy(front);
}

/* Which request is the longest goes by the chunk. */
static void test_a_smaller_chunk_changes_the_order(void **state)
{
    (void)state;
    ofl_plan plan = made_plan(1, 101, 100, 16, 4096);
    ofl_front *front = made_front(&plan, OFL_LONGEST_FIRST);
    ofl_step step = {.struct_size = sizeof step};
    for (uint32_t i = 0; i < 20; i++) (void)submit(front, i % 2 ? 100 : 1, i % 2 ? 1 + i : 20 + i, i);
    assert_ok(ofl_front_limit(front, 0, 1));
    uint64_t last = UINT64_MAX;
    while (ofl_front_next_step(front, &step) == OFL_OK) {
        uint64_t tag = step.items[0].tag, steps = tag % 2 ? 100 + 1 + tag : 1 + 20 + tag;
        assert_true(steps <= last);
        last = steps;
        assert_ok(ofl_front_commit(front, NULL, 0));
    }
    ofl_front_destroy(front);
}

static void test_slots_stay_busy(void **state)
{
    (void)state;
    ofl_plan plan = made_plan(64, 320, 256, 16, 64 * 512);
    ofl_front *front = made_front(&plan, OFL_LONGEST_FIRST);
    uint64_t seed = 11, busy = 0, slots = 0;
    for (uint32_t i = 0; i < 500; i++)
        (void)submit(front, 5 + (uint32_t)(test_random(&seed) % 60), 20 + (uint32_t)(test_random(&seed) % 400), i);
    ofl_step step = {.struct_size = sizeof step};
    ofl_front_forecast f = {.struct_size = sizeof f};
    while (ofl_front_next_step(front, &step) == OFL_OK) {
        assert_ok(ofl_front_forecast_get(front, &f));
        if (f.waiting > 0) busy += step.item_count, slots += 64;
        assert_ok(ofl_front_commit(front, NULL, 0));
    }
    assert_true((double)busy > 0.95 * (double)slots);
    ofl_front_destroy(front);
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    ofl_plan plan = made_plan(4, 20, 16, 16, 4096);
    for (uint64_t nth = 1;; nth++) {
        ofl_front *front = NULL;
        ofl_request request = {sizeof request, 40, 40, 7};
        ofl_step step = {.struct_size = sizeof step};
        ofl_front_forecast f = {.struct_size = sizeof f};
        (void)ofl_fault_allocation(nth);
        ofl_status status = ofl_front_create(&plan, NULL, &front);
        if (status == OFL_OK) status = ofl_front_submit(front, &request, NULL);
        if (status == OFL_OK) status = ofl_front_forecast_get(front, &f);
        if (status == OFL_OK) status = ofl_front_next_step(front, &step);
        bool hit = ofl_fault_allocation(0) == 0;
        assert_int_equal(status, hit ? OFL_ERROR_HOST_MEMORY : OFL_OK);
        ofl_front_destroy(front);
        if (!hit) break;
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_random_queues),
    cmocka_unit_test(test_a_short_request_does_not_starve),
    cmocka_unit_test(test_forecast_equals_the_run),
    cmocka_unit_test(test_runs_of_like_steps_are_estimated_at_their_middle),
    cmocka_unit_test(test_forecast_in_the_middle),
    cmocka_unit_test(test_long_queue_is_cheap_to_forecast),
    cmocka_unit_test(test_measured_steps_correct_the_forecast),
    cmocka_unit_test(test_what_can_never_run_is_refused_at_once),
    cmocka_unit_test(test_order_of_calls),
    cmocka_unit_test(test_limits_come_from_the_plan),
    cmocka_unit_test(test_longest_first),
    cmocka_unit_test(test_a_smaller_chunk_changes_the_order),
    cmocka_unit_test(test_slots_stay_busy),
    cmocka_unit_test(test_each_allocation_may_fail),
};
TEST_MAIN(tests)
