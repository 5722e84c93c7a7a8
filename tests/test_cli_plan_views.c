/* What ofload-plan shows beside the plan itself: sweeps, the curve on the page, the drawing. */
#include "support/support.h"

#include <math.h>
#include <stdbool.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#define PLAN OFLOAD_BIN_DIR "/ofload-plan"
#define BENCH OFLOAD_BIN_DIR "/ofload-bench"
#define ODD_NAME "a<b>&\\\"c\\\" \xff\x01 é"

static int plan(const char *arguments, char **output_out)
{
    char line[2048];
    (void)snprintf(line, sizeof line, "cd '%s' && " PLAN " %s", test_folder(), arguments);
    return test_run(line, output_out);
}

static char *page(const char *arguments)
{
    char *output = NULL;
    int status = plan(arguments, &output);
    if (status != 0) fail_msg("%s: %d: %s", arguments, status, output);
    return output;
}

static cJSON *json(const char *arguments)
{
    char *output = page(arguments);
    cJSON *tree = cJSON_Parse(output);
    if (tree == NULL) fail_msg("%s: %s", arguments, output);
    free(output);
    return tree;
}

static const cJSON *member(const cJSON *tree, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(tree, key);
    if (item == NULL) fail_msg("the JSON has no %s", key);
    return item;
}

static double number(const cJSON *tree, const char *key) { return member(tree, key)->valuedouble; }

static int make_models(void)
{
    char line[2048], *output = NULL;
    (void)snprintf(line, sizeof line,
                   "cd '%s' && " BENCH " mkmodel --output big.gguf --sparse --architecture qwen2 --layers 28 --hidden 3584 --heads 28 "
                   "--kv-heads 4 --ffn 18944 --vocab 152064 --context 32768 --name big && "
                   BENCH " mkmodel --output odd.gguf --layers 4 --name \"" ODD_NAME "\"",
                   test_folder());
    int status = test_run(line, &output);
    if (status != 0) (void)fprintf(stderr, "%s", output);
    free(output);
    return status;
}

static size_t count_of(const char *text, const char *what)
{
    size_t count = 0;
    for (; (text = strstr(text, what)) != NULL; text++) count++;
    return count;
}

/* A row is the plan that its value makes by itself, to the last bit; a rate assumed from the link follows the link. */
static void rows_are_the_plans_of_their_values(void **state)
{
    (void)state;
    static const struct { const char *sweep, *alone; double values[4]; } cases[] = {
        {"--link 3.26GB/s --context 512 --sweep vram=4GB..16GB,4GB", "--link 3.26GB/s --context 512 --vram %.0f", {4e9, 8e9, 12e9, 16e9}},
        {"--vram 12GB --link 3.26GB/s --sweep context=1024..8192", "--vram 12GB --link 3.26GB/s --context %.0f", {1024, 2048, 4096, 8192}},
        {"--vram 12GB --context 512 --sweep sequences=1..9", "--vram 12GB --context 512 --sequences %.0f", {1, 2, 4, 8}},
        {"--vram 12GB --host-ram 6GB --context 512 --sweep link=2GB/s..8GB/s/4", "--vram 12GB --host-ram 6GB --context 512 --link %.0fB/s",
         {2e9, 4e9, 6e9, 8e9}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[512], one[256];
        (void)snprintf(line, sizeof line, "--json %s big.gguf", cases[i].sweep);
        cJSON *tree = json(line);
        assert_string_equal(member(tree, "schema")->valuestring, "ofload.sweep/1");
        for (int k = 0; k < 4; k++) {
            const cJSON *row = cJSON_GetArrayItem(member(tree, "rows"), k);
            (void)snprintf(one, sizeof one, cases[i].alone, cases[i].values[k]);
            (void)snprintf(line, sizeof line, "--json %s big.gguf", one);
            cJSON *own = json(line);
            assert_true(number(row, "value") == cases[i].values[k]);
            assert_string_equal(member(row, "plan")->valuestring, member(member(own, "identity"), "plan")->valuestring);
            double rate = number(row, "tokens_per_second");
            assert_true(fabs(number(member(own, "forecast"), "tokens_per_second") / rate - 1) < 1e-14);
            assert_true(number(row, "streamed_bytes") == number(member(own, "stream"), "bytes_per_step"));
            cJSON_Delete(own);
        }
        cJSON_Delete(tree);
    }
}

static void values_are_those_asked_for(void **state)
{
    (void)state;
    static const struct { const char *sweep; int count; double second, last; } cases[] = {
        {"vram=8GiB..24GiB", 9, 10.0 * 1073741824, 24.0 * 1073741824},
        {"vram=8GB..24GB/5", 5, 12e9, 24e9},
        {"vram=8GB..24GB,5GB", 4, 13e9, 23e9},
        {"context=1000..7000", 4, 2000, 7000},
        {"context=1024..8192,1024", 8, 2048, 8192},
        {"sequences=1..4/64", 4, 2, 4},
        {"link=3GB/s..5GB/s,0.5GB/s", 5, 3.5e9, 5e9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256];
        bool memory = strncmp(cases[i].sweep, "vram", 4) == 0;
        (void)snprintf(line, sizeof line, "--json %s --sweep %s big.gguf", memory ? "" : "--vram 16GB", cases[i].sweep);
        cJSON *tree = json(line);
        const cJSON *rows = member(tree, "rows");
        assert_int_equal(cJSON_GetArraySize(rows), cases[i].count);
        assert_true(number(cJSON_GetArrayItem(rows, 1), "value") == cases[i].second);
        assert_true(fabs(number(cJSON_GetArrayItem(rows, cases[i].count - 1), "value") - cases[i].last) < 1e-3);
        cJSON_Delete(tree);
    }
}

/* Shown, never left out; none fits: status 3, and shown all the same. */
static void what_does_not_fit_is_shown(void **state)
{
    (void)state;
    char *output = page("--vram 12GB --link 12GB/s --sweep context=32768..524288 big.gguf");
    assert_int_equal(count_of(output, "does not fit\n"), 2 + 1); /* rows, and the legend */
    assert_int_equal(count_of(output, "×"), 2 + 1);
    assert_non_null(strstr(output, "524,288  does not fit\n"));
    assert_non_null(strstr(output, "\n262,144 does not fit: ")); /* the nearest one, with the reason */
    free(output);
    cJSON *tree = json("--json --vram 12GB --sweep context=32768..524288 big.gguf");
    const cJSON *last = cJSON_GetArrayItem(member(tree, "rows"), 4);
    assert_true(cJSON_IsFalse(member(last, "fits")));
    assert_non_null(strstr(member(last, "why")->valuestring, "not even one sequence"));
    cJSON_Delete(tree);
    assert_int_equal(plan("--sweep vram=100MB..400MB/4 big.gguf", &output), 3);
    assert_int_equal(count_of(output, "  does not fit\n"), 4);
    assert_non_null(strstr(output, "ofload-plan: no value of the sweep fits; 400.0 MB: "));
    free(output);
    assert_int_equal(plan("--quiet --sweep vram=100MB..400MB/4 --svg none.svg big.gguf", NULL), 3);
    assert_int_equal(access(test_path("none.svg"), F_OK), -1);
}

static void mistakes_are_refused(void **state)
{
    (void)state;
    static const struct { const char *arguments, *says; } cases[] = {
        {"--sweep vram big.gguf", "is no sweep"},
        {"--sweep speed=1..2 big.gguf", "is no sweep"},
        {"--sweep vram=8GB big.gguf", "is no range"},
        {"--sweep vram=8GB..4GB big.gguf", "does not ascend"},
        {"--sweep vram=4GB..4GB big.gguf", "does not ascend"},
        {"--sweep vram=4G..8GB big.gguf", "4GiB is 4,294,967,296"},
        {"--sweep vram=4GB..8GB,0 big.gguf", "above 0"},
        {"--vram 8GB --sweep sequences=0..8 big.gguf", "above 0"},
        {"--vram 8GB --sweep sequences=1..65,1 big.gguf", "more than 64 values"},
        {"--vram 8GB --sweep sequences=1..65/65 big.gguf", "from 2 to 64"},
        {"--vram 8GB --sweep link=1GB/s..2 big.gguf", "is no rate"},
        {"--vram 8GB --sweep context=1..9/x big.gguf", "is no whole number"},
        {"--vram 8GB --sweep vram=4GB..8GB big.gguf", "--vram and --sweep vram"},
        {"--vram 8GB --sequences 2 --sweep sequences=1..2 big.gguf", "--sequences and --sweep sequences"},
        {"--vram 8GB --context 64 --sweep context=64..128 big.gguf", "--context and --sweep context"},
        {"--vram 8GB --link 2GB/s --sweep link=1GB/s..2GB/s big.gguf", "--link and --sweep link"},
        {"--output x.json --sweep vram=4GB..8GB big.gguf", "--sweep makes many plans"},
        {"--device sim:vram=1GB,h2d=1GB/s,clock=virtual --sweep vram=1GB..2GB big.gguf", "more than the 1.00 GB"},
        {"--vram 8GB --svg big.gguf big.gguf", "is the model"},
        {"--vram 8GB --svg odd.gguf big.gguf", "named like a file of weights"},
        {"--machine m.json --svg m.json big.gguf", "the machine file"},
        {"--vram 8GB --output x --svg ./x big.gguf", "where --output goes"},
        {"--vram 8GB --svg folder/config.json folder", "is a part of the model"},
    };
    char line[1024];
    (void)snprintf(line, sizeof line, "cd '%s' && mkdir -p folder && echo '{}' > folder/config.json && echo '{}' > m.json", test_folder());
    assert_int_equal(test_run(line, NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *output = NULL;
        int status = plan(cases[i].arguments, &output);
        if (status != 2 || strstr(output, cases[i].says) == NULL) fail_msg("%s: %d: %s", cases[i].arguments, status, output);
        free(output);
    }
}

/* One character is one cell. */
static size_t widest_line(const char *text)
{
    size_t widest = 0, width = 0;
    for (; *text != '\0'; text++) {
        width = *text == '\n' ? 0 : width + (((unsigned char)*text & 0xc0) != 0x80);
        if (width > widest) widest = width;
    }
    return widest;
}

static void lines_stay_within_the_width(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "--vram 12GB --link 12GB/s big.gguf", "--vram 12GB --link 12GB/s --resident-layers 3 big.gguf",
        "--vram 12GB --host-ram 3GB --device-flops 1TFLOP/s --context 256 big.gguf", "--vram 1GB --headroom 0 --overhead 0 odd.gguf",
        "--link 3GB/s --sweep vram=100MB..24GB/64 big.gguf", "--vram 12GB --sweep sequences=1..99999 big.gguf"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char *output = page(lines[i]);
        if (widest_line(output) > 100) fail_msg("%s: %zu cells wide:\n%s", lines[i], widest_line(output), output);
        free(output);
    }
}

/* The line that starts with `start`, up to its end; free() it. */
static char *line_of(const char *text, const char *start)
{
    const char *found = strncmp(text, start, strlen(start)) == 0 ? text : NULL;
    for (const char *at = text; found == NULL && (at = strchr(at, '\n')) != NULL;) {
        at++;
        if (strncmp(at, start, strlen(start)) == 0) found = at;
    }
    if (found == NULL) fail_msg("no line \"%s\" in:\n%s", start, text);
    return strndup(found, strcspn(found, "\n"));
}

/* In cells from the left. */
static size_t cell_of(const char *line, const char *what)
{
    const char *found = strstr(line, what);
    size_t cells = 0;
    if (found == NULL) fail_msg("no %s in: %s", what, line);
    for (const char *at = line; at < found; at++) cells += ((unsigned char)*at & 0xc0) != 0x80;
    return cells;
}

/* Doubled counts stand at even distances; the last one of the page need not be twice the one before. */
static void assert_ticks_are_even(const char *axis)
{
    int ticks[64] = {0}, count = 0, cell = 0;
    for (const char *at = axis; *at != '\0' && count < 64; at++) {
        if (strncmp(at, "┴", strlen("┴")) == 0) ticks[count++] = cell;
        cell += ((unsigned char)*at & 0xc0) != 0x80;
    }
    assert_true(count > 5);
    for (int i = 2; i + 1 < count; i++) {
        if (abs((ticks[i] - ticks[i - 1]) - (ticks[1] - ticks[0])) > 1) fail_msg("%s", axis);
    }
}

/* The curve has few lines; the knee stands between the sequences around it. */
static void the_curve_marks_the_knee(void **state)
{
    (void)state;
    char *output = page("--vram 12GB --link 6GB/s --device-flops 3TFLOP/s --context 256 big.gguf");
    cJSON *tree = json("--json --vram 12GB --link 6GB/s --device-flops 3TFLOP/s --context 256 big.gguf");
    double knee = number(member(tree, "forecast"), "knee_tokens");
    assert_true(knee > 128 && knee < 256);
    char *axis = line_of(output, "          └"), *names = line_of(output, "sequences "), *rates = line_of(output, "tokens/s ");
    assert_int_equal(count_of(axis, "▲"), 1);
    assert_ticks_are_even(axis);
    assert_true(cell_of(names, " 128 ") < cell_of(axis, "▲"));
    assert_true(cell_of(names, " 256 ") > cell_of(axis, "▲"));
    assert_true(count_of(output, "●") >= 6);
    free(axis);
    free(names);
    free(rates);
    char *said = line_of(output, "knee ");
    assert_non_null(strstr(said, "▲ at "));
    free(said);
    free(output);
    cJSON_Delete(tree);
    output = page("--vram 12GB --link 1GB/s big.gguf");
    assert_null(strstr(output, "▲"));
    assert_non_null(strstr(output, "; at most "));
    free(output);
    output = page("--vram 24GB --link 1GB/s big.gguf");
    assert_non_null(strstr(output, "none: nothing is streamed"));
    free(output);
}

/* Every tag closed in order, attributes quoted, entities known, no control characters: what a parser of XML wants of such a file. */
static void assert_well_formed(const char *text)
{
    char stack[16][16];
    size_t depth = 0, roots = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 && *at != '\n') fail_msg("control character 0x%02x", (unsigned)*at);
        if (*at == '>') fail_msg("a lone > before: %.40s", at);
        if (*at == '&' && strncmp(at, "&amp;", 5) != 0 && strncmp(at, "&lt;", 4) != 0 && strncmp(at, "&gt;", 4) != 0)
            fail_msg("an entity: %.20s", at);
        if (*at != '<') continue;
        bool closes = at[1] == '/';
        const char *name = at + 1 + closes, *end = strchr(at, '>');
        size_t length = strcspn(name, " />\n");
        assert_true(end != NULL && length > 0 && length < 16);
        assert_int_equal(memchr(at + 1, '<', (size_t)(end - at - 1)) != NULL, 0);
        char tag[512];
        assert_true((size_t)(end - at) < sizeof tag);
        (void)snprintf(tag, sizeof tag, "%.*s", (int)(end - at), at);
        assert_int_equal(count_of(tag, "\"") % 2, 0);
        assert_int_equal(count_of(tag, "\""), 2 * count_of(tag, "=\""));
        if (closes) {
            assert_true(depth > 0 && strlen(stack[depth - 1]) == length && strncmp(stack[depth - 1], name, length) == 0);
            depth--;
        } else if (end[-1] != '/') {
            roots += depth == 0;
            assert_true(depth < 16);
            (void)snprintf(stack[depth++], 16, "%.*s", (int)length, name);
        }
        at = end;
    }
    assert_int_equal(depth, 0);
    assert_int_equal(roots, 1);
}

static char *drawing(const char *arguments)
{
    char line[512];
    (void)snprintf(line, sizeof line, "--quiet --svg drawn.svg %s", arguments);
    free(page(line));
    assert_int_equal(access(test_path("drawn.svg.new"), F_OK), -1);
    (void)snprintf(line, sizeof line, "! command -v xmllint > /dev/null || xmllint --noout '%s'", test_path("drawn.svg"));
    char *output = NULL;
    if (test_run(line, &output) != 0) fail_msg("%s", output);
    free(output);
    return test_read(test_path("drawn.svg"), NULL);
}

static void drawings_are_well_formed(void **state)
{
    (void)state;
    char *svg = drawing("--vram 12GB --link 6GB/s --device-flops 3TFLOP/s --context 256 big.gguf");
    assert_well_formed(svg);
    assert_non_null(strstr(svg, "@media(prefers-color-scheme:dark)"));
    assert_non_null(strstr(svg, ">device memory, 12.00 GB</text>"));
    assert_int_equal(count_of(svg, "<line class=\"knee\""), 1);
    assert_int_equal(count_of(svg, "height=\"16.0\"/>"), 5); /* buckets: resident, ring, KV, runtime, headroom */
    assert_true(count_of(svg, "<rect class=\"streamed\"") > 28); /* layers */
    free(svg);
    svg = drawing("--vram 12GB big.gguf");
    assert_int_equal(count_of(svg, "<line class=\"knee\""), 0);
    free(svg);
    svg = drawing("--link 3GB/s --sweep vram=200MB..24GB big.gguf");
    assert_well_formed(svg);
    assert_int_equal(count_of(svg, ">×</text>"), 1);
    assert_true(count_of(svg, "<circle class=\"ring-dot\"") > 0);
    free(svg);
}

static void names_are_escaped(void **state)
{
    (void)state;
    static const char *const lines[] = {"--vram 1GB odd.gguf", "--sweep vram=1GB..2GB odd.gguf",
                                        "--vram 1GB --sweep sequences=1..4 odd.gguf"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char *svg = drawing(lines[i]);
        assert_well_formed(svg);
        if (strstr(svg, ">a&lt;b&gt;&amp;\"c\" ?? é</text>") == NULL) fail_msg("%s", svg);
        free(svg);
    }
}

/* A failure leaves what was there. */
static void a_drawing_is_whole_or_not_there(void **state)
{
    (void)state;
    char *before = drawing("--vram 12GB big.gguf"), *after = NULL, *output = NULL;
    assert_int_equal(plan("--vram 100MB --svg drawn.svg big.gguf", &output), 3);
    free(output);
    after = test_read(test_path("drawn.svg"), NULL);
    assert_string_equal(before, after);
    free(before);
    free(after);
    assert_int_equal(plan("--vram 12GB --svg nowhere/drawn.svg big.gguf", &output), 1);
    assert_non_null(strstr(output, "nowhere/drawn.svg"));
    free(output);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_are_the_plans_of_their_values),
    cmocka_unit_test(values_are_those_asked_for),
    cmocka_unit_test(what_does_not_fit_is_shown),
    cmocka_unit_test(mistakes_are_refused),
    cmocka_unit_test(lines_stay_within_the_width),
    cmocka_unit_test(the_curve_marks_the_knee),
    cmocka_unit_test(drawings_are_well_formed),
    cmocka_unit_test(names_are_escaped),
    cmocka_unit_test(a_drawing_is_whole_or_not_there),
};

int main(void)
{
    if (make_models() != 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? 0 : 1;
}
