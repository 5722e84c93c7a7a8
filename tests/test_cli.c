#include "support/support.h"

#include "common/cli.h"
#include "common/show.h"

#include <math.h>

static struct { uint64_t size, count; double rate, flops, number; const char *text; uint32_t choice; int flag, size_given; } got;

static const cli_option options[] = {
    {"--vram", CLI_SIZE, &got.size, &got.size_given, "SIZE", NULL, "what may be used"},
    {"--link", CLI_RATE, &got.rate, NULL, "RATE", NULL, "the link"},
    {"--flops", CLI_FLOPS, &got.flops, NULL, "RATE", NULL, "the compute"},
    {"--context", CLI_COUNT, &got.count, NULL, "N", NULL, "tokens"},
    {"--temperature", CLI_NUMBER, &got.number, NULL, "X", NULL, "how wild"},
    {"--output", CLI_TEXT, &got.text, NULL, "FILE", NULL, "where to"},
    {"--kv-type", CLI_CHOICE, &got.choice, NULL, "f16|bf16|f32", "f16|bf16|f32", "how the cache is stored"},
    {"--json", CLI_FLAG, &got.flag, NULL, NULL, NULL, "for programs"},
};
static const cli_program program = {"ofload-test",  "[options] MODEL", "It tests.",
                                    "That is all.", options,           sizeof options / sizeof options[0]};

/* A space-separated command line; argc_out and argv_out may be NULL. */
static ofl_status parse(const char *line, int *argc_out, char ***argv_out, int *exit_out)
{
    static char text[512];
    static char *argv[32];
    int argc = 0;
    (void)snprintf(text, sizeof text, "ofload-test %s", line);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) argv[argc++] = word;
    argv[argc] = NULL;
    memset(&got, 0, sizeof got);
    ofl_status status = cli_parse(&program, &argc, argv, exit_out);
    if (argc_out != NULL) *argc_out = argc;
    if (argv_out != NULL) *argv_out = argv;
    return status;
}

static void sizes_with_their_units(void **state)
{
    (void)state;
    static const struct { const char *text; uint64_t bytes;
    } good[] = {
        {"24GB", 24000000000u},
        {"24GiB", 25769803776u},
        {"24000000000", 24000000000u},
        {"12.49GB", 12490000000u},
        {"64MiB", 67108864},
        {"64 MiB", 67108864},
        {"1kB", 1000},
        {"1KB", 1000},
        {"1KiB", 1024},
        {"0", 0},
        {"7B", 7},
        {"0.5GiB", 536870912},
        {"2e9", 2000000000u},
        {"1TB", 1000000000000u},
        {"1TiB", 1099511627776u},
        {".5kB", 500},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 1;
        if (cli_parse_size(good[i].text, &bytes) != OFL_OK) fail_msg("%s", app_error());
        assert_int_equal(bytes, good[i].bytes);
    }
    static const char *const bad[] = {"",    "GB",     "-1GB",   "12Gb",   "12gb",   "0x10",  "inf",  "nan",
                                      "1.5", "1e40GB", "12GB/s", "12 G B", "1..2GB", "12GBx", "+3GB", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 77;
        if (cli_parse_size(bad[i], &bytes) != OFL_ERROR_ARGUMENT || bytes != 77)
            fail_msg("\"%s\" was taken as %llu", bad[i], (unsigned long long)bytes);
    }
}

static void a_bare_letter_names_both_readings(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    assert_int_equal(cli_parse_size("24G", &bytes), OFL_ERROR_ARGUMENT);
    assert_non_null(strstr(app_error(), "24GB is 24,000,000,000 bytes"));
    assert_non_null(strstr(app_error(), "24GiB is 25,769,803,776"));
    assert_int_equal(cli_parse_size("512k", &bytes), OFL_ERROR_ARGUMENT);
    assert_non_null(strstr(app_error(), "512KiB is 524,288"));
}

static void rates_need_their_unit(void **state)
{
    (void)state;
    double rate = 0;
    assert_int_equal(cli_parse_rate("3.26GB/s", &rate), OFL_OK);
    assert_true(rate == 3.26e9);
    assert_int_equal(cli_parse_rate("12 GiB/s", &rate), OFL_OK);
    assert_true(rate == 12 * 1073741824.0);
    assert_int_equal(cli_parse_flops("51TFLOP/s", &rate), OFL_OK);
    assert_true(rate == 51e12);
    static const char *const bad[] = {"12", "12GB", "12Gb/s", "12Gbit/s", "0GB/s", "GB/s", "-1GB/s", "12/s", "1e999GB/s", "1e300GB/s",
                                      "1e-300GB/s"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (cli_parse_rate(bad[i], &rate) != OFL_ERROR_ARGUMENT) fail_msg("\"%s\" was taken", bad[i]);
    }
    assert_int_equal(cli_parse_flops("51TB/s", &rate), OFL_ERROR_ARGUMENT);
    assert_int_equal(cli_parse_flops("51", &rate), OFL_ERROR_ARGUMENT);
    assert_int_equal(cli_parse_flops("1e300TFLOP/s", &rate), OFL_ERROR_ARGUMENT);
}

static void every_kind_in_both_spellings(void **state)
{
    (void)state;
    int exit_status = -1, argc = 0;
    char **argv = NULL;
    assert_int_equal(parse("one --vram 12GB --link=3.26GB/s --flops 51TFLOP/s --context=512 --temperature -0.5 --output x.json --kv-type "
                           "bf16 --json two -",
                           &argc, &argv, &exit_status),
                     OFL_OK);
    assert_int_equal(got.size, 12000000000u);
    assert_int_equal(got.size_given, 1);
    assert_true(got.rate == 3.26e9 && got.flops == 51e12 && got.number == -0.5);
    assert_int_equal(got.count, 512);
    assert_string_equal(got.text, "x.json");
    assert_int_equal(got.choice, 1);
    assert_int_equal(got.flag, 1);
    assert_int_equal(argc, 4);
    assert_string_equal(argv[1], "one");
    assert_string_equal(argv[2], "two");
    assert_string_equal(argv[3], "-");
    assert_null(argv[4]);
}

static void two_dashes_end_the_options(void **state)
{
    (void)state;
    int exit_status = -1, argc = 0;
    char **argv = NULL;
    assert_int_equal(parse("--json -- --vram --", &argc, &argv, &exit_status), OFL_OK);
    assert_int_equal(argc, 3);
    assert_string_equal(argv[1], "--vram");
    assert_string_equal(argv[2], "--");
    assert_int_equal(got.size_given, 0);
}

static void mistakes_are_usage_errors_with_a_sentence(void **state)
{
    (void)state;
    static const struct { const char *line, *says; } cases[] = {
        {"--vram 12GB --vram 12GB", "twice"},
        {"--json --json", "twice"},
        {"--vrma 12GB", "did you mean --vram?"},
        {"--contex=5", "did you mean --context?"},
        {"--hlep", "did you mean --help?"},
        {"--entirely-else", "--help lists them"},
        {"-v", "no option"},
        {"--vram", "needs a value: --vram SIZE"},
        {"--vram= x", "needs a value"},
        {"--output --json", "needs a value"},
        {"--json=yes", "takes no value"},
        {"--vram 12G", "--vram: \"12G\" can be read in two ways"},
        {"--kv-type f17", "none of f16|bf16|f32"},
        {"--kv-type f1", "none of f16|bf16|f32"},
        {"--context 5.5", "whole number"},
        {"--context -5", "whole number"},
        {"--context 12345678901234567890", "whole number"},
        {"--temperature warm", "no number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int exit_status = -1;
        ofl_status status = parse(cases[i].line, NULL, NULL, &exit_status);
        if (status != OFL_ERROR_ARGUMENT || exit_status != EXIT_USAGE || strstr(app_error(), cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].line, app_error());
    }
}

static void help_and_version_answer_whatever_else_is_there(void **state)
{
    (void)state;
    int exit_status = -1;
    assert_int_equal(parse("--nonsense --help", NULL, NULL, &exit_status), OFL_END);
    assert_int_equal(exit_status, EXIT_DONE);
    assert_int_equal(parse("--version", NULL, NULL, &exit_status), OFL_END);
    assert_int_equal(parse("-- --help", NULL, NULL, &exit_status), OFL_OK);
}

static void figures_for_people(void **state)
{
    (void)state;
    char b[32];
    assert_string_equal(cli_show_bytes(b, 10660000000u, 0), "10.66 GB");
    assert_string_equal(cli_show_bytes(b, 67108864, 1), "64.0 MiB");
    assert_string_equal(cli_show_bytes(b, 17, 0), "17 B");
    assert_string_equal(cli_show_bytes(b, 999999999, 0), "1.00 GB");
    assert_string_equal(cli_show_bytes(b, UINT64_MAX, 0), "18446744.07 TB");
    assert_string_equal(cli_show_rate(b, 3.26e9), "3.26 GB/s");
    assert_string_equal(cli_show_seconds(b, 1.07), "1.07 s");
    assert_string_equal(cli_show_seconds(b, 0.0562), "56.2 ms");
    assert_string_equal(cli_show_seconds(b, 5e-6), "5.0 µs");
    assert_string_equal(cli_show_seconds(b, 7260), "2 h 01 min");
    assert_string_equal(cli_show_seconds(b, 359999), "99 h 59 min");
    assert_string_equal(cli_show_seconds(b, 360000), "4.2 days");
    assert_string_equal(cli_show_seconds(b, 1e8), "3.2 years");
    assert_string_equal(cli_show_seconds(b, 1.5e10), "475 years");
    assert_string_equal(cli_show_seconds(b, 3e12), "95,064 years");
    assert_string_equal(cli_show_seconds(b, 1e300), "1,000,000+ years");
    assert_string_equal(cli_show_seconds(b, INFINITY), "never");
    assert_string_equal(cli_show_count(b, 1650), "1,650");
    assert_string_equal(cli_show_count(b, 999), "999");
    assert_string_equal(cli_show_count(b, 1000000), "1,000,000");
}

static void cells_tell_nothing_some_and_all_apart(void **state)
{
    (void)state;
    assert_string_equal(show_level(0), "·");
    assert_string_equal(show_level(0.01), "·");
    assert_string_equal(show_level(0.1), "▁");
    assert_string_equal(show_level(0.5), "▄");
    assert_string_equal(show_level(0.999), "▇");
    assert_string_equal(show_level(1), "█");
    const double shares[] = {1, 1, 0, 0, 1};
    assert_int_equal(show_strip(shares, 5, 5), 1);
    assert_int_equal(show_strip(shares, 5, 3), 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sizes_with_their_units),
    cmocka_unit_test(a_bare_letter_names_both_readings),
    cmocka_unit_test(rates_need_their_unit),
    cmocka_unit_test(every_kind_in_both_spellings),
    cmocka_unit_test(two_dashes_end_the_options),
    cmocka_unit_test(mistakes_are_usage_errors_with_a_sentence),
    cmocka_unit_test(help_and_version_answer_whatever_else_is_there),
    cmocka_unit_test(figures_for_people),
    cmocka_unit_test(cells_tell_nothing_some_and_all_apart),
};

TEST_MAIN(tests)
