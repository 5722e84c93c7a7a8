/* Random plans, orders, tiers and seeds: each reader compares every byte that it is handed with the model's own at the moment its work runs,
 * and the ring is poisoned behind it, so a stale or torn byte is seen. OFLOAD_TEST_ACQUIRES=N: that many acquires in all (default 20,000);
 * OFLOAD_TEST_SEED=N: begin there. */
#include "support/engine_fixture.h"

#include "base/base.h"

enum { STREAMS = 3, HELD_MOST = 3, PENDING_MOST = 512, SLICES_MOST = 16 };

typedef struct seen { uint64_t acquires, bytes, plans, streamed, refused; } seen;

typedef struct pending { fixture_check check; ofl_view_slice slices[SLICES_MOST]; } pending;

typedef struct held { uint32_t unit; ofl_stream *stream; } held;

typedef struct walk {
    fixture f;
    ofl_stream *streams[STREAMS];
    pending *pending;
    held held[HELD_MOST];
    uint32_t pending_count, holding, wrong, order[512];
    uint64_t seed, random;
    seen *seen;
} walk;

static uint64_t below(uint64_t *random, uint64_t n) { return test_random(random) % n; }

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* From the least memory that works to all resident; parts, rings, whole blocks; links and compute over orders of magnitude; all pinned or
 * into the lower tiers. */
static int random_case(uint64_t *random, const ofl_model *model, fixture_case *out)
{
    static const double links[] = {1e8, 1e9, 2e10}, computes[] = {1e-10, 1e-9, 1e-8};
    fixture_case c = {.link = links[below(random, 3)], .compute = computes[below(random, 3)], .cut = OFL_CUT_BYTES, .clock = "virtual"};
    c.start = below(random, 2) ? 5e-6 : 0;
    c.part_bytes = (24u << 10) << below(random, 4);
    c.vram = fixture_least_vram(c, model) + below(random, 3) * below(random, 1u << 20);
    if (below(random, 4) == 0) {
        c.ring_bytes = (2 + below(random, 4)) * c.part_bytes;
        c.vram += c.ring_bytes;
    } else if (below(random, 6) == 0) {
        c = (fixture_case){.link = c.link, .compute = c.compute, .vram = 16u << 20, .whole_blocks = 1, .clock = "virtual"};
        c.layers_kept = (uint32_t)below(random, FIXTURE_BLOCKS);
    }
    if (below(random, 3) == 0) {
        c.pinnable = (1u << 20) + below(random, 3u << 20);
        if (below(random, 2)) c.host_bytes = (2u << 20) + below(random, 2u << 20);
    }
    c.order = 1 + below(random, 1u << 20);
    ofl_plan *plan;
    ofl_status status = fixture_plan_make(&c, model, &plan);
    if (status == OFL_OK) ofl_plan_destroy(plan);
    *out = c;
    return status == OFL_OK;
}

static void drain(walk *w)
{
    for (int i = 0; i < STREAMS; i++) assert_ok(ofl_stream_wait(w->f.device, w->streams[i]));
    if (w->wrong != 0)
        fail_msg("%u slices with wrong bytes; again with OFLOAD_TEST_SEED=%llu", (unsigned)w->wrong, (unsigned long long)w->seed);
    w->pending_count = 0;
}

static void let_go(walk *w, uint32_t which)
{
    assert_ok(ofl_engine_release(w->f.engine, w->held[which].unit, w->held[which].stream));
    memmove(w->held + which, w->held + which + 1, (--w->holding - which) * sizeof *w->held);
}

/* The reader's work: now on the host, or when it runs on the device; and how long that takes. */
static void read_unit(walk *w, const ofl_view *view, ofl_stream *stream)
{
    double seconds = (double)below(&w->random, 1000) * (below(&w->random, 8) ? 1e-7 : 1e-5);
    pending *p = &w->pending[w->pending_count++];
    assert_true(view->slice_count <= SLICES_MOST);
    memcpy(p->slices, view->slices, view->slice_count * sizeof *view->slices);
    p->check = (fixture_check){w->f.model, p->slices, view->slice_count, &w->wrong};
    for (uint32_t i = 0; i < view->slice_count; i++) w->seen->bytes += view->slices[i].bytes;
    if (stream != NULL) {
        assert_ok(ofl_sim_launch(w->f.device, stream, fixture_check_run, &p->check, seconds));
    } else {
        fixture_check_run(&p->check);
        assert_ok(ofl_sim_elapse(w->f.device, seconds));
    }
    if (w->pending_count == PENDING_MOST) drain(w);
}

static int is_held(const walk *w, uint32_t unit)
{
    for (uint32_t i = 0; i < w->holding; i++) {
        if (w->held[i].unit == unit) return 1;
    }
    return 0;
}

static void use_unit(walk *w, uint32_t unit, uint64_t held_most)
{
    uint64_t which = below(&w->random, STREAMS + 1);
    ofl_stream *stream = which < STREAMS ? w->streams[which] : NULL;
    ofl_view view = {.struct_size = sizeof view};
    if (is_held(w, unit)) return;
    ofl_status status = ofl_engine_acquire(w->f.engine, unit, stream, &view);
    for (; status == OFL_ERROR_STATE && w->holding > 0; w->seen->refused++) { /* the ring is full of held units */
        let_go(w, 0);
        status = ofl_engine_acquire(w->f.engine, unit, stream, &view);
    }
    assert_ok(status);
    w->seen->acquires++;
    read_unit(w, &view, stream);
    w->held[w->holding++] = (held){unit, stream};
    while (w->holding >= held_most) let_go(w, (uint32_t)below(&w->random, w->holding));
}

/* The step's order: the plan's, backwards, shuffled for good, or with units left out, repeated and out of place. */
static uint32_t plan_step(walk *w, uint32_t kind)
{
    uint32_t units = w->f.units, count = 0;
    for (uint32_t i = 0; i < units && count < OFL_COUNT_OF(w->order); i++) {
        uint64_t what = kind < 3 ? 9 : below(&w->random, 12);
        if (what == 0) continue;
        uint32_t unit = kind == 1 ? units - 1 - i : kind == 2 ? (uint32_t)((uint64_t)i * 7919 % units) : i;
        w->order[count++] = what == 1 ? (uint32_t)below(&w->random, units) : unit;
    }
    return count;
}

static void walk_plan(walk *w, uint64_t acquires)
{
    uint32_t kind = (uint32_t)below(&w->random, 4);
    uint64_t held_most = 1 + below(&w->random, HELD_MOST), stop = w->seen->acquires + acquires;
    while (w->seen->acquires < stop) {
        if (below(&w->random, 5) == 0) kind = (uint32_t)below(&w->random, 4);
        uint32_t count = plan_step(w, kind);
        for (uint32_t i = 0; i < count; i++) use_unit(w, w->order[i], held_most);
        if (below(&w->random, 2)) assert_ok(ofl_engine_step_end(w->f.engine));
        if (below(&w->random, 3) == 0) drain(w);
    }
    while (w->holding > 0) let_go(w, 0);
}

static void run_seed(uint64_t seed, fixture_model *models, seen *total, uint64_t acquires)
{
    static const ofl_engine_options poisoned = {.struct_size = sizeof poisoned, .poison = 1};
    fixture_case c;
    uint64_t random = seed;
    fixture_model *model = &models[below(&random, 3)];
    if (!random_case(&random, model->model, &c)) return;
    walk w = {.seed = seed, .random = random, .seen = total};
    w.pending = calloc(PENDING_MOST, sizeof *w.pending);
    assert_non_null(w.pending);
    fixture_open(&w.f, &c, model, &poisoned);
    for (int i = 0; i < STREAMS; i++) assert_ok(ofl_stream_create(w.f.device, &w.streams[i]));
    walk_plan(&w, acquires);
    drain(&w);
    for (int i = 0; i < STREAMS; i++) ofl_stream_destroy(w.f.device, w.streams[i]);
    total->plans++;
    total->streamed += w.f.budget.stream_bytes_per_step != 0;
    fixture_close(&w.f);
    free(w.pending);
}

static void test_no_stale_or_torn_byte(void **state)
{
    (void)state;
    fixture_model models[3];
    seen total = {0};
    uint64_t wanted = from_environment("OFLOAD_TEST_ACQUIRES", FIXTURE_SEEDS(20000)), seed = from_environment("OFLOAD_TEST_SEED", 1);
    fixture_model_make(&models[0], 0, NULL);
    fixture_model_make(&models[1], 1, NULL);
    fixture_model_make(&models[2], 0, test_path("weights"));
    while (total.acquires < wanted) {
        run_seed(seed++, models, &total, 300);
    }
    assert_true(total.streamed * 2 > total.plans && total.refused > 0);
    print_message("%llu acquires of %llu plans (%llu streamed), %.2f GB compared, %llu refusals of a full ring; no wrong byte\n",
                  (unsigned long long)total.acquires, (unsigned long long)total.plans, (unsigned long long)total.streamed,
                  (double)total.bytes * 1e-9, (unsigned long long)total.refused);
    for (int i = 0; i < 3; i++) fixture_model_close(&models[i]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_no_stale_or_torn_byte),
};
TEST_MAIN(tests)
