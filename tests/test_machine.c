#include "support/support.h"

#include "base/base.h"

static ofl_machine *card(void)
{
    ofl_machine *machine = NULL;
    assert_ok(ofl_machine_create("a card", &machine));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_VRAM, 12.49e9, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK, 3.26e9, OFL_SOURCE_MEASURED));
    return machine;
}

static void figures_are_kept_with_their_source(void **state)
{
    (void)state;
    ofl_machine *machine = card();
    ofl_source source = OFL_SOURCE_ASSUMED;
    assert_true(ofl_machine_get(machine, OFL_FIGURE_VRAM, &source) == 12.49e9);
    assert_int_equal(source, OFL_SOURCE_GIVEN);
    assert_true(ofl_machine_get(machine, OFL_FIGURE_FILE, &source) == 0);
    assert_int_equal(source, OFL_SOURCE_NONE);
    assert_string_equal(ofl_machine_device(machine), "a card");
    assert_false(ofl_machine_simulated(machine));
    ofl_machine_destroy(machine);
    ofl_machine_destroy(NULL);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    ofl_machine *machine = card();
    const double bad[] = {0, -1, 0.0 / 0.0, 1.0 / 0.0};
    for (size_t i = 0; i < OFL_COUNT_OF(bad); i++)
        assert_status(ofl_machine_set(machine, OFL_FIGURE_LINK, bad[i], OFL_SOURCE_GIVEN), OFL_ERROR_ARGUMENT);
    assert_status(ofl_machine_set(machine, OFL_FIGURE_VRAM, 1.5, OFL_SOURCE_GIVEN), OFL_ERROR_ARGUMENT);
    assert_status(ofl_machine_set(machine, OFL_FIGURE_VRAM, 1e17, OFL_SOURCE_GIVEN), OFL_ERROR_ARGUMENT);
    assert_status(ofl_machine_set(machine, OFL_FIGURE_VRAM, 1e9, OFL_SOURCE_NONE), OFL_ERROR_ARGUMENT);
    assert_status(ofl_machine_set(machine, OFL_FIGURE_COUNT, 1e9, OFL_SOURCE_GIVEN), OFL_ERROR_ARGUMENT);
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_COPY_START, 0, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_RUNTIME, 0, OFL_SOURCE_GIVEN));
    assert_status(ofl_machine_set(machine, OFL_FIGURE_LINK, 1e-300, OFL_SOURCE_GIVEN), OFL_ERROR_ARGUMENT);
    assert_status(ofl_machine_set(machine, OFL_FIGURE_HOST_FLOPS, 1e300, OFL_SOURCE_GIVEN), OFL_ERROR_ARGUMENT);
    assert_status(ofl_machine_set(machine, OFL_FIGURE_COPY_START, 1e300, OFL_SOURCE_GIVEN), OFL_ERROR_ARGUMENT);
    assert_true(ofl_machine_get(machine, OFL_FIGURE_LINK, NULL) == 3.26e9);
    ofl_machine_destroy(machine);
}

/* None is 1, not known is left out: 0 could be meant as either. */
static void pinnable_of_none_is_one(void **state)
{
    (void)state;
    static const char none[] = "{\"schema\": \"ofload.machine/1\", \"pinnable_bytes\": 0}";
    static const char said[] = "pinnable_bytes is 0; where nothing can be page-locked say 1, where it is not known leave it out";
    ofl_machine *machine = card(), *read = NULL;
    assert_status(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, 0, OFL_SOURCE_GIVEN), OFL_ERROR_ARGUMENT);
    assert_non_null(strstr(ofl_error_message(), said));
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_PINNABLE, 1, OFL_SOURCE_GIVEN));
    assert_status(ofl_machine_from_json(none, sizeof none - 1, &read), OFL_ERROR_FORMAT);
    assert_non_null(strstr(ofl_error_message(), said));
    ofl_machine_destroy(machine);
}

/* What is assumed from the least rate is a rate as well. */
static void the_least_rate_is_enough(void **state)
{
    (void)state;
    ofl_machine *machine = card();
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_LINK, OFL_RATE_LEAST, OFL_SOURCE_GIVEN));
    assert_ok(ofl_machine_assume(machine));
    assert_true(ofl_machine_get(machine, OFL_FIGURE_LINK_PAGEABLE, NULL) == OFL_RATE_LEAST);
    ofl_machine_destroy(machine);
}

/* Programs print it, and put it in JSON. */
static void the_name_of_a_device_is_printable(void **state)
{
    (void)state;
    ofl_machine *machine = NULL;
    assert_ok(ofl_machine_create("a\x1b[2J\xff\xc2\x85\xc3\xa9 card", &machine));
    assert_string_equal(ofl_machine_device(machine), "a?[2J???\xc3\xa9 card");
    ofl_machine_destroy(machine);
    static const char *const bad[] = {"{\"schema\":\"ofload.machine/1\",\"device\":\"a\\u001b[2J\"}",
                                      "{\"schema\":\"ofload.machine/1\",\"device\":\"\xff\"}"};
    for (size_t i = 0; i < OFL_COUNT_OF(bad); i++) {
        assert_status(ofl_machine_from_json(bad[i], strlen(bad[i]), &machine), OFL_ERROR_FORMAT);
        assert_non_null(strstr(ofl_error_message(), "no text of one line"));
    }
}

static void the_identity_follows_figures_and_sources(void **state)
{
    (void)state;
    ofl_machine *one = card(), *two = card();
    char before[65];
    assert_int_equal(strlen(ofl_machine_identity(one)), 64);
    assert_string_equal(ofl_machine_identity(one), ofl_machine_identity(two));
    (void)snprintf(before, sizeof before, "%s", ofl_machine_identity(one));
    assert_ok(ofl_machine_set(one, OFL_FIGURE_LINK, 3.26e9, OFL_SOURCE_GIVEN));
    assert_string_not_equal(ofl_machine_identity(one), before);
    assert_ok(ofl_machine_set(one, OFL_FIGURE_LINK, 3.26e9, OFL_SOURCE_MEASURED));
    assert_string_equal(ofl_machine_identity(one), before);
    assert_ok(ofl_machine_set(one, OFL_FIGURE_LINK, 3.27e9, OFL_SOURCE_MEASURED));
    assert_string_not_equal(ofl_machine_identity(one), before);
    ofl_machine_destroy(one);
    ofl_machine_destroy(two);
}

static void defaults_fill_what_is_unset_and_nothing_else(void **state)
{
    (void)state;
    ofl_machine *machine = card();
    ofl_source source;
    assert_ok(ofl_machine_assume(machine));
    assert_true(ofl_machine_get(machine, OFL_FIGURE_LINK, &source) == 3.26e9);
    assert_int_equal(source, OFL_SOURCE_MEASURED);
    assert_true(ofl_machine_get(machine, OFL_FIGURE_LINK_PAGEABLE, &source) == 1.63e9);
    assert_int_equal(source, OFL_SOURCE_ASSUMED);
    assert_true(ofl_machine_get(machine, OFL_FIGURE_RUNTIME, NULL) == 768.0 * 1048576);
    for (int i = 0; i < OFL_FIGURE_COUNT; i++) {
        (void)ofl_machine_get(machine, (ofl_figure)i, &source);
        assert_int_equal(source == OFL_SOURCE_NONE, i > OFL_FIGURE_RUNTIME && i != OFL_FIGURE_PINNING); /* those are never assumed */
    }
    ofl_machine_destroy(machine);
}

static void device_memory_is_never_assumed(void **state)
{
    (void)state;
    ofl_machine *machine = NULL;
    ofl_source source;
    assert_ok(ofl_machine_create(NULL, &machine));
    assert_status(ofl_machine_assume(machine), OFL_ERROR_ARGUMENT);
    assert_non_null(strstr(ofl_error_message(), "vram_bytes"));
    (void)ofl_machine_get(machine, OFL_FIGURE_LINK, &source);
    assert_int_equal(source, OFL_SOURCE_NONE);
    ofl_machine_destroy(machine);
}

static void a_saved_machine_reads_back_equal(void **state)
{
    (void)state;
    ofl_machine *machine = card(), *again = NULL;
    char *first = NULL, *second = NULL;
    assert_ok(ofl_machine_set(machine, OFL_FIGURE_COPY_START, 2.7e-6 / 3, OFL_SOURCE_MEASURED));
    assert_ok(ofl_machine_assume(machine));
    const char *path = test_path("machine.json");
    assert_ok(ofl_machine_save(machine, path));
    assert_ok(ofl_machine_load(path, &again));
    assert_string_equal(ofl_machine_identity(again), ofl_machine_identity(machine));
    assert_ok(ofl_machine_to_json(machine, &first));
    assert_ok(ofl_machine_to_json(again, &second));
    assert_string_equal(first, second);
    ofl_string_free(first);
    ofl_string_free(second);
    ofl_machine_destroy(again);
    ofl_machine_destroy(machine);
}

static void figures_written_by_hand_count_as_given(void **state)
{
    (void)state;
    const char *json = "{\"schema\":\"ofload.machine/1\",\"vram_bytes\":24e9,\"simulated\":true}\n";
    ofl_machine *machine = NULL;
    ofl_source source;
    assert_ok(ofl_machine_from_json(json, strlen(json), &machine));
    assert_true(ofl_machine_get(machine, OFL_FIGURE_VRAM, &source) == 24e9);
    assert_int_equal(source, OFL_SOURCE_GIVEN);
    assert_true(ofl_machine_simulated(machine));
    assert_ok(ofl_machine_assume(machine));
    assert_true(ofl_machine_get(machine, OFL_FIGURE_RUNTIME, NULL) == 0);
    ofl_machine_destroy(machine);
}

static void bad_files_are_refused_by_name(void **state)
{
    (void)state;
    static const struct { const char *json, *says; } cases[] = {
        {"", "no valid JSON"},
        {"{\"schema\":\"ofload.machine/1\"} x", "no valid JSON"},
        {"[]", "no JSON object"},
        {"{\"vram_bytes\":1}", "schema"},
        {"{\"schema\":\"ofload.machine/2\"}", "ofload.machine/2"},
        {"{\"schema\":\"ofload.machine/1\",\"vram_byte\":1}", "vram_byte"},
        {"{\"schema\":\"ofload.machine/1\",\"vram_bytes\":\"12GB\"}", "vram_bytes"},
        {"{\"schema\":\"ofload.machine/1\",\"vram_bytes\":1e999}", "vram_bytes"},
        {"{\"schema\":\"ofload.machine/1\",\"vram_bytes\":-4}", "vram_bytes"},
        {"{\"schema\":\"ofload.machine/1\",\"vram_bytes\":4,\"vram_bytes\":5}", "twice"},
        {"{\"schema\":\"ofload.machine/1\",\"vram_bytes\":4,\"sources\":{\"vram_bytes\":\"guessed\"}}", "vram_bytes"},
        {"{\"schema\":\"ofload.machine/1\",\"sources\":4}", "sources"},
        {"{\"schema\":\"ofload.machine/1\",\"simulated\":4}", "simulated"},
        {"{\"schema\":\"ofload.machine/1\",\"device\":4}", "device"},
    };
    ofl_machine *machine;
    for (size_t i = 0; i < OFL_COUNT_OF(cases); i++) {
        machine = (ofl_machine *)(uintptr_t)cases; /* whatever stood there before is gone */
        assert_status(ofl_machine_from_json(cases[i].json, strlen(cases[i].json), &machine), OFL_ERROR_FORMAT);
        assert_null(machine);
        if (strstr(ofl_error_message(), cases[i].says) == NULL) fail_msg("%s: %s", cases[i].json, ofl_error_message());
    }
    assert_status(ofl_machine_load(test_path("none.json"), &machine), OFL_ERROR_NOT_FOUND);
    test_write(test_path("cut.json"), "{\"schema\":", 10);
    assert_status(ofl_machine_load(test_path("cut.json"), &machine), OFL_ERROR_FORMAT);
    assert_non_null(strstr(ofl_error_message(), "cut.json"));
}

static void a_save_that_fails_leaves_the_old_file(void **state)
{
    (void)state;
    ofl_machine *machine = card();
    assert_status(ofl_machine_save(machine, test_path("no/such/folder.json")), OFL_ERROR_IO);
    ofl_machine_destroy(machine);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *json = "{\"schema\":\"ofload.machine/1\",\"vram_bytes\":24e9}";
    for (uint64_t nth = 1; nth < 20; nth++) {
        ofl_machine *machine = NULL;
        char *text = NULL;
        (void)ofl_fault_allocation(nth);
        ofl_status status = ofl_machine_from_json(json, strlen(json), &machine);
        if (status == OFL_OK) status = ofl_machine_to_json(machine, &text);
        if (status == OFL_OK) status = ofl_machine_save(machine, test_path("fault.json"));
        uint64_t left = ofl_fault_allocation(0);
        ofl_string_free(text);
        ofl_machine_destroy(machine);
        if (left != 0) {
            assert_int_equal(status, OFL_OK);
            assert_true(nth > 4);
            return;
        }
        assert_int_equal(status, OFL_ERROR_HOST_MEMORY);
    }
    fail_msg("the sweep never came to its end");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(figures_are_kept_with_their_source),
    cmocka_unit_test(nonsense_is_refused),
    cmocka_unit_test(pinnable_of_none_is_one),
    cmocka_unit_test(the_least_rate_is_enough),
    cmocka_unit_test(the_name_of_a_device_is_printable),
    cmocka_unit_test(the_identity_follows_figures_and_sources),
    cmocka_unit_test(defaults_fill_what_is_unset_and_nothing_else),
    cmocka_unit_test(device_memory_is_never_assumed),
    cmocka_unit_test(a_saved_machine_reads_back_equal),
    cmocka_unit_test(figures_written_by_hand_count_as_given),
    cmocka_unit_test(bad_files_are_refused_by_name),
    cmocka_unit_test(a_save_that_fails_leaves_the_old_file),
    cmocka_unit_test(every_allocation_may_fail),
};

TEST_MAIN(tests)
