/* How good the layouts are: against the bound, against stacking, against every other placement; and that less never places more. */
#include <math.h>

#include "plan_models.h"

#include "plan/plan_state.h"

#include <pthread.h>

static double larger(double a, double b) { return a > b ? a : b; }

static double dense_bytes(const ofl_model *model)
{
    double sum = 0;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        assert_ok(ofl_model_tensor_get(model, i, &info));
        if (info.tensor_class == OFL_CLASS_DENSE) sum += (double)info.bytes;
    }
    return sum;
}

/* Step ÷ max((W − V)/B, C), where no ring at all is the bound; starts cost what is assumed. compute: C as a share of (W − V)/B. */
static double above_bound(const ofl_model *model, double share, double link, double compute)
{
    double dense = dense_bytes(model), bandwidth = link / (1 - share) / compute;
    ofl_machine *machine = test_machine((double)(uint64_t)(dense * share), link, 5e-6, bandwidth, 1e18, 0);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512, .force_headroom = 1, .prefill_chunk_tokens = 16};
    ofl_plan *plan = NULL;
    assert_ok(ofl_plan_make(model, machine, &w, &plan));
    planned p = read_plan(plan);
    double ratio = p.forecast.step.step_seconds /
                   larger((double)p.budget.lower_bound_bytes_per_step / link, p.forecast.step.compute_seconds);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    return ratio;
}

static void test_row_parts_are_near_the_bound(void **state)
{
    (void)state;
    static const double shares[] = {0.25, 0.5, 0.8}, links[] = {3.3e9, 12e9, 25e9, 55e9};
    const test_shape shapes[] = {qwen7b(), llama70b()};
    for (int m = 0; m < 2; m++) {
        ofl_model *model = test_model(shapes[m]);
        for (int i = 0; i < 3 * 4 * 10; i++) {
            double link = links[i / 10 % 4], compute = 0.1 * (i % 10 + 1), ratio = above_bound(model, shares[i / 40], link, compute);
            if (ratio > (link > 30e9 ? 1.03 : 1.02))
                fail_msg("model %d, V %.2f, link %.1f GB/s, compute %.1f: %.4f", m, shares[i / 40], link / 1e9, compute, ratio);
        }
        ofl_model_destroy(model);
    }
}

/* The same residents and ring, but the last ones streamed, not every n-th: near the knee the link stands still. */
static void test_spread_beats_stacked(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = test_machine(8e9, 12e9, 5e-6, 12e9 * 2.2, 1e18, 0);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512};
    ofl_plan *plan = NULL;
    assert_ok(ofl_plan_make(model, machine, &w, &plan));
    ofl_plan_draft *draft = &plan->draft;
    double spread = draft->step.step_seconds, bound = draft->step.bound_seconds;
    assert_true(spread < 1.01 * bound);
    uint64_t streamed = 0, wanted = draft->budget.stream_bytes_per_step;
    for (uint32_t i = draft->cut.unit_slice_count; i-- > 0;) {
        ofl_slice *slice = &draft->cut.slices[i];
        bool stream = streamed < wanted && !plan->facts.tensors[slice->tensor].small;
        slice->tier = stream ? OFL_TIER_PINNED : OFL_TIER_DEVICE;
        streamed += stream ? slice->bytes : 0;
    }
    ofl_plan_cut_layout(&draft->cut);
    ofl_step_estimate stacked = {.struct_size = sizeof stacked};
    assert_ok(ofl_plan_draft_pieces(&plan->facts, draft));
    assert_ok(ofl_plan_draft_estimate(&plan->facts, draft, &draft->shape, &stacked));
    assert_true(stacked.step_seconds > 1.2 * spread);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* Whole blocks in two slots: T = streamed blocks × max(copy, blocks between them × compute), where they divide the layers evenly. */
static void test_timeline_of_equal_blocks(void **state)
{
    (void)state;
    ofl_plan_piece pieces[12];
    double lead[12], own[12];
    for (int k = 1; k <= 4; k++) {
        for (double compute = 0.05; compute < 1.2; compute += 0.1) {
            for (int i = 0; i < 12; i++) {
                pieces[i] = (ofl_plan_piece){.bytes = 4096, .copy_seconds = 1};
                lead[i] = (k - 1) * compute;
                own[i] = compute;
            }
            ofl_timeline_input in = {.pieces = pieces, .piece_count = 12, .lead = lead, .own = own, .ring_bytes = 8192};
            ofl_step_estimate e = {.struct_size = sizeof e};
            assert_ok(ofl_plan_timeline(&in, &e));
            double wanted = 12 * larger(1, k * compute);
            assert_true(e.step_seconds > wanted * (1 - 1e-6) && e.step_seconds < wanted * (1 + 1e-6));
            in.ring_bytes = 4096; /* one slot: copy and use take turns; the blocks between hide the copy */
            assert_ok(ofl_plan_timeline(&in, &e));
            wanted = 12 * larger(1 + compute, k * compute);
            assert_true(e.step_seconds > wanted * (1 - 1e-6) && e.step_seconds < wanted * (1 + 1e-6));
        }
    }
}

/* Contiguous: T = max(n·t_c, L·t_l, (n − 2)·t_c + (m + 2)·t_l), n streamed behind m resident, two slots. */
static void test_timeline_of_stacked_blocks(void **state)
{
    (void)state;
    ofl_plan_piece pieces[24];
    double lead[24] = {0}, own[24];
    for (double compute = 0.05; compute < 1; compute += 0.1) {
        for (int i = 0; i < 24; i++) {
            pieces[i] = (ofl_plan_piece){.bytes = 256, .copy_seconds = 1};
            own[i] = compute;
        }
        lead[0] = 24 * compute;
        ofl_timeline_input in = {.pieces = pieces, .piece_count = 24, .lead = lead, .own = own, .ring_bytes = 512};
        ofl_step_estimate e = {.struct_size = sizeof e};
        assert_ok(ofl_plan_timeline(&in, &e));
        double wanted = larger(24, larger(48 * compute, 22 + 26 * compute));
        assert_true(e.step_seconds > wanted * (1 - 1e-6) && e.step_seconds < wanted * (1 + 1e-6));
    }
}

/* The link goes on between steps as far as the ring holds what it brings. */
/* Every other piece is read before it is copied, by a reader that goes ahead: the longer of reading and copying counts, as far as the ring
 * has places to read for. */
static void test_timeline_with_a_reader(void **state)
{
    (void)state;
    static const struct { double fill; uint64_t ring, chunks; double least, most; } cases[] = {
        {1, 4, 1, 8, 8.01},    /* reading takes half of what copying does */
        {3, 8, 1, 12, 12.01},  /* and half as much again */
        {3, 2, 1, 13, 16.01},  /* two pieces: one is read, the other copied, in turns */
        {16, 8, 4, 64, 64.01}, /* in chunks, so that a piece is copied while it is read */
        {16, 1, 4, 68, 69},    /* the copy of the last chunk shows, and the piece that is not read */
    };
    ofl_plan_piece pieces[8];
    double lead[8] = {0}, own[8] = {0};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ofl_step_estimate e = {.struct_size = sizeof e};
        for (uint32_t i = 0; i < 8; i++) {
            pieces[i] = (ofl_plan_piece){.bytes = 256, .copy_seconds = 1, .chunks = cases[c].chunks, .unit = i};
            if (i % 2 == 0) pieces[i].fill_seconds = cases[c].fill;
        }
        ofl_timeline_input in = {.pieces = pieces, .piece_count = 8, .lead = lead, .own = own, .ring_bytes = cases[c].ring * 256};
        assert_ok(ofl_plan_timeline(&in, &e));
        if (e.step_seconds < cases[c].least - 1e-9 || e.step_seconds > cases[c].most) fail_msg("case %zu: %.6f", c, e.step_seconds);
        assert_true(e.bound_seconds == larger(8, 4 * cases[c].fill) && e.link_seconds == e.bound_seconds);
        assert_true(fabs(e.link_idle_seconds - (e.step_seconds - 8)) < 1e-9); /* by the copies, also where filling takes longer */
    }
}

static void test_timeline_across_the_step_boundary(void **state)
{
    (void)state;
    ofl_plan_piece pieces[8];
    double lead[8] = {0}, own[8];
    for (int i = 0; i < 8; i++) {
        pieces[i] = (ofl_plan_piece){.bytes = 256, .copy_seconds = 1};
        own[i] = 0.1;
    }
    ofl_timeline_input in = {.pieces = pieces, .piece_count = 8, .lead = lead, .own = own, .host = 2.5, .ring_bytes = 4 * 256};
    ofl_step_estimate e = {.struct_size = sizeof e};
    assert_ok(ofl_plan_timeline(&in, &e));
    assert_true(e.step_seconds < 8 * (1 + 1e-6) && e.link_idle_seconds < 1e-6);
    in.ring_bytes = 2 * 256;
    assert_ok(ofl_plan_timeline(&in, &e));
    assert_true(e.step_seconds > 8.3);
}

typedef struct sweep {
    ofl_model *model;
    double dense, link, start, bandwidth, flops, vram;
    int kind; /* 0: memory, 1: context, 2: sequences */
} sweep;

static sweep random_sweep(uint64_t *seed)
{
    uint32_t hidden = (uint32_t)(64 * (1 + test_random(seed) % 24));
    test_shape s = {(uint32_t)(1 + test_random(seed) % 12),
                    hidden,
                    hidden / 64,
                    1,
                    64,
                    (uint32_t)(64 * (2 + test_random(seed) % 60)),
                    (uint32_t)(500 + test_random(seed) % 30000),
                    (uint32_t)(test_random(seed) % 2),
                    (uint32_t)(test_random(seed) % 2),
                    OFL_DTYPE_BF16};
    sweep w = {.model = test_model(s), .kind = (int)(test_random(seed) % 3)};
    w.dense = dense_bytes(w.model);
    w.link = 1e9 * (double)(1 + test_random(seed) % 20);
    w.start = (double)(test_random(seed) % 3) * 3e-6;
    w.bandwidth = w.link * (double)(1 + test_random(seed) % 30);
    w.flops = w.bandwidth * (double)(1 + test_random(seed) % 300);
    w.vram = w.dense * (0.3 + (double)(test_random(seed) % 100) / 100);
    return w;
}

/* i grows: more memory, less context, fewer sequences. */
static ofl_status sweep_plan(const sweep *s, uint32_t i, ofl_plan **out)
{
    ofl_workload w = {
        .struct_size = sizeof w, .context_tokens = s->kind == 1 ? (41 - i) * 96 : 256, .sequences = s->kind == 2 ? 41 - i : 0};
    ofl_machine *machine = test_machine((double)(uint64_t)(s->kind == 0 ? s->dense * 0.04 * (i + 1) : s->vram), s->link, s->start,
                                        s->bandwidth, s->flops, 0);
    ofl_status status = ofl_plan_make(s->model, machine, &w, out);
    ofl_machine_destroy(machine);
    return status;
}

static void test_less_never_places_more(void **state)
{
    (void)state;
    uint64_t seed = 42, plans = 0;
    for (int m = 0; m < 40; m++) {
        sweep s = random_sweep(&seed);
        uint64_t last = 0;
        for (uint32_t i = 0; i < 40; i++) {
            ofl_plan *plan = NULL;
            ofl_status status = sweep_plan(&s, i, &plan);
            if (status == OFL_ERROR_NO_FIT) {
                assert_int_equal(last, 0); /* what fits once fits with more */
                continue;
            }
            assert_ok(status);
            ofl_budget b = read_plan(plan).budget;
            assert_true(b.total_bytes <= b.vram_bytes);
            double odd = s.dense / 1024 < 1048576 ? s.dense / 1024 : 1048576; /* sizes of slices show up to this */
            if ((double)b.resident_bytes + odd < (double)last)
                fail_msg("model %d, kind %d, step %u: %.0f after %.0f bytes", m, s.kind, i, (double)b.resident_bytes, (double)last);
            last = b.resident_bytes;
            plans++;
            ofl_plan_destroy(plan);
        }
        ofl_model_destroy(s.model);
    }
    assert_true(plans > 1000);
}

/* All placements of the first slices with the same ring: the shortest step. */
static double brute_force(ofl_plan *plan, uint32_t *movable_out)
{
    ofl_plan_draft *draft = &plan->draft;
    uint32_t movable[12], count = 0;
    uint64_t room = draft->budget.vram_bytes - (draft->budget.total_bytes - draft->budget.resident_bytes);
    double best = 1e300;
    draft->ring_bytes = draft->budget.ring_bytes;
    *movable_out = 0;
    for (uint32_t i = 0; i < draft->cut.unit_slice_count; i++) {
        if (plan->facts.tensors[draft->cut.slices[i].tensor].small) continue;
        if (++*movable_out <= 12) movable[count++] = i;
    }
    for (uint32_t mask = 0; mask < 1u << count; mask++) {
        for (uint32_t i = 0; i < count; i++) draft->cut.slices[movable[i]].tier = mask >> i & 1 ? OFL_TIER_DEVICE : OFL_TIER_PINNED;
        ofl_plan_cut_layout(&draft->cut);
        if (ofl_plan_resident_bytes(&draft->cut) > room) continue;
        if (ofl_plan_draft_measure(&plan->facts, draft) != OFL_OK) continue; /* a piece or the host's memory does not fit */
        if (draft->step.step_seconds < best) best = draft->step.step_seconds;
    }
    return best;
}

typedef struct tally { uint32_t exact, others, best, by_cut[3], tied, tiers; double worst; } tally;

/* Half of what is streamed, about, finds no pinned memory. */
static void give_tiers(ofl_machine *machine, double dense, double lookups, double link)
{
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, (double)(uint64_t)(lookups + dense * 0.2), OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK_PAGEABLE, link / 2, OFL_SOURCE_GIVEN));
}

static void hold_to_brute_force(uint64_t *seed, tally *sum)
{
    ofl_cut cut = (ofl_cut)(test_random(seed) % 3);
    uint32_t hidden = (uint32_t)(192 + (cut == OFL_CUT_AUTO ? 0 : 64 * (test_random(seed) % 8))); /* small enough for few parts */
    test_shape s = {1,
                    hidden,
                    hidden / 64,
                    hidden / 64,
                    64,
                    (uint32_t)(128 * (3 + test_random(seed) % (cut == OFL_CUT_AUTO ? 4 : 16))),
                    (uint32_t)(600 + test_random(seed) % (cut == OFL_CUT_AUTO ? 700 : 4000)),
                    (uint32_t)(test_random(seed) % 3 == 0),
                    0,
                    OFL_DTYPE_BF16};
    ofl_model *model = test_model(s);
    bool tiers = test_random(seed) % 4 == 0 && !s.tied;
    double link = 1e9 * (double)(1 + test_random(seed) % 20), bandwidth = link * (0.5 + (double)(test_random(seed) % 100) / 20),
           dense = dense_bytes(model);
    ofl_workload w = {
        .struct_size = sizeof w, .context_tokens = 64, .force_headroom = 1, .prefill_chunk_tokens = 16, .cut = cut};
    uint64_t part = (uint64_t)(dense / (double)(3 + test_random(seed) % 6));
    w.part_bytes = cut == OFL_CUT_BYTES ? part : 0;
    ofl_machine *machine = test_machine((double)(uint64_t)(dense * (0.5 + (double)(test_random(seed) % 60) / 100)), link, 3e-6, bandwidth,
                                        1e18, 0);
    if (tiers) give_tiers(machine, dense, 2.0 * s.hidden * s.vocab, link);
    ofl_plan *plan = NULL;
    if (ofl_plan_make(model, machine, &w, &plan) == OFL_OK && plan->draft.piece_count != 0) {
        uint32_t movable;
        bool slower = read_plan(plan).budget.pageable_bytes != 0;
        double mine = plan->draft.step.step_seconds, least = brute_force(plan, &movable);
        if (mine >= (movable <= 12 ? 1 + 1e-8 : slower ? 1.2 : 1.12) * least) fail_msg("%u movable slices: %.9f above the best", movable, mine / least - 1);
        if (movable <= 12) sum->exact++, sum->by_cut[cut]++, sum->tied += s.tied, sum->tiers += slower;
        else sum->others++, sum->best += mine < 1.001 * least, sum->worst = larger(sum->worst, mine / least - 1);
    }
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* Up to twelve slices, cut in every way, tied or from slower tiers: no placement is better, ever. Of more slices the 12 % (20 where some
 * are read from slower tiers) hold for these models
 * alone and guard what there is: with other seeds up to 18 % were seen, since nothing is exchanged that would let less memory keep more. */
static void test_small_models_against_every_placement(void **state)
{
    (void)state;
    uint64_t seed = 7;
    tally sum = {0};
    for (int m = 0; m < 2000 && sum.exact < 200; m++) hold_to_brute_force(&seed, &sum);
    print_message("%u small models (cut by choice %u, not at all %u, by size %u; tied %u; slower tiers %u): no placement is better; "
                  "%u larger ones at most %.1f %% above the best that was tried, %u of them within 0.1 %%\n",
                  sum.exact, sum.by_cut[OFL_CUT_AUTO], sum.by_cut[OFL_CUT_OFF], sum.by_cut[OFL_CUT_BYTES], sum.tied, sum.tiers, sum.others, 100 * sum.worst, sum.best);
    assert_true(sum.exact == 200 && sum.best * 2 >= sum.others);
    for (int i = 0; i < 3; i++) assert_true(sum.by_cut[i] > 20);
    assert_true(sum.tied > 20 && sum.tiers > 5);
}

/* Parts: equal but for a few rows, no larger than asked, blocks apart, small tensors with the next matrix. */
static void test_cut_by_rows(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = test_machine(12.49e9, 3.26e9, 5e-6, 360e9, 51e12, 0.75e9);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512, .cut = OFL_CUT_BYTES, .part_bytes = 20 << 20};
    ofl_plan *plan = plan_of(model, machine, &w);
    for (uint32_t i = 0; i < ofl_plan_unit_count(plan); i++) {
        ofl_unit u = {.struct_size = sizeof u};
        assert_ok(ofl_plan_unit_get(plan, i, &u));
        uint64_t matrices = 0;
        for (uint32_t j = u.slice_first; j < u.slice_first + u.slice_count; j++) {
            ofl_slice s = {.struct_size = sizeof s};
            ofl_tensor_info info = {.struct_size = sizeof info};
            assert_ok(ofl_plan_slice_get(plan, j, &s));
            assert_ok(ofl_model_tensor_get(model, s.tensor, &info));
            assert_int_equal(info.block, u.block);
            if (info.n_dims < 2) continue;
            matrices += s.bytes;
            uint64_t parts = (info.bytes + (20 << 20) - 1) / (20 << 20);
            assert_true((double)s.bytes > 0.93 * (double)info.bytes / (double)(parts + (parts > 1)));
        }
        assert_true(matrices > 0 && matrices <= 20 << 20);
    }
    ofl_plan_destroy(plan);
    w.part_bytes = 1; /* a row a unit is too fine for this model */
    plan = NULL;
    assert_status(ofl_plan_make(model, machine, &w, &plan), OFL_ERROR_ARGUMENT);
    w.cut = OFL_CUT_OFF;
    w.part_bytes = 0;
    plan = plan_of(model, machine, &w);
    assert_int_equal(ofl_plan_unit_count(plan), 29);
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

/* The largest models take larger parts: planning costs what its units cost, and the step loses next to nothing by it. */
static void test_units_of_the_largest_models(void **state)
{
    (void)state;
    static const uint32_t hidden[] = {1024, 4096, 8192, 16384};
    for (int i = 0; i < 4; i++) {
        test_shape s = {1000, hidden[i], hidden[i] / 128, 8, 128, 4 * hidden[i], 128256, 0, 0, OFL_DTYPE_BF16};
        ofl_model *model = test_model(s);
        ofl_machine *machine = test_machine(dense_bytes(model) / 4, 12e9, 5e-6, 1e12, 100e12, 0);
        ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512};
        ofl_plan *plan = NULL;
        assert_ok(ofl_plan_make(model, machine, &w, &plan));
        planned p = read_plan(plan);
        assert_true(ofl_plan_unit_count(plan) < 16000);
        double bound = larger((double)p.budget.lower_bound_bytes_per_step / 12e9, p.forecast.step.compute_seconds);
        assert_true(p.forecast.step.step_seconds < 1.01 * bound);
        assert_ok(ofl_plan_check(plan, model));
        ofl_plan_destroy(plan);
        ofl_machine_destroy(machine);
        ofl_model_destroy(model);
    }
}

typedef struct asking { const ofl_plan *plan; char identity[65]; } asking;

static void *ask_identity(void *context)
{
    asking *a = context;
    (void)snprintf(a->identity, sizeof a->identity, "%s", ofl_plan_identity(a->plan));
    return NULL;
}

/* It is made when it is first asked for: by any thread, for all. */
static void test_identity_from_many_threads(void **state)
{
    (void)state;
    ofl_model *model = test_model(qwen7b());
    ofl_machine *machine = test_machine(12.49e9, 3.26e9, 5e-6, 360e9, 51e12, 0.75e9);
    ofl_workload w = {.struct_size = sizeof w, .context_tokens = 512};
    ofl_plan *plan = NULL;
    pthread_t threads[4];
    asking asked[4];
    assert_ok(ofl_plan_make(model, machine, &w, &plan));
    for (int i = 0; i < 4; i++) {
        asked[i] = (asking){.plan = plan};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_identity, &asked[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(strlen(asked[i].identity), 64);
        assert_string_equal(asked[i].identity, ofl_plan_identity(plan));
    }
    ofl_plan_destroy(plan);
    ofl_machine_destroy(machine);
    ofl_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_row_parts_are_near_the_bound),
    cmocka_unit_test(test_spread_beats_stacked),
    cmocka_unit_test(test_timeline_of_equal_blocks),
    cmocka_unit_test(test_timeline_of_stacked_blocks),
    cmocka_unit_test(test_timeline_with_a_reader),
    cmocka_unit_test(test_timeline_across_the_step_boundary),
    cmocka_unit_test(test_less_never_places_more),
    cmocka_unit_test(test_small_models_against_every_placement),
    cmocka_unit_test(test_cut_by_rows),
    cmocka_unit_test(test_units_of_the_largest_models),
    cmocka_unit_test(test_identity_from_many_threads),
};
TEST_MAIN(tests)
