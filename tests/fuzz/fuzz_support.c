#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];
static uint64_t accepted;

_Noreturn void fuzz_broken(const char *condition, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: does not hold: %s (last failure: %s)\n", file, line, condition, ofl_error_message());
    abort();
}

void fuzz_accept(void) { accepted++; }
uint64_t fuzz_accepted(void) { return accepted; }

static void remove_folder(void)
{
    char command[300];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) (void)fprintf(stderr, "left behind: %s\n", folder);
}

const char *fuzz_path(const char *name)
{
    static char paths[8][512];
    static unsigned next;
    if (folder[0] == '\0') {
        const char *base = getenv("TMPDIR");
        (void)snprintf(folder, sizeof folder, "%s/ofload-fuzz-XXXXXX", base != NULL ? base : "/tmp");
        FUZZ_REQUIRE(mkdtemp(folder) != NULL);
        (void)atexit(remove_folder);
    }
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static FILE *start(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(fuzz_path(name), "wb");
    FUZZ_REQUIRE(file != NULL && fwrite(data, 1, bytes, file) == bytes);
    return file;
}

static void finish(FILE *file, uint64_t hole)
{
    FUZZ_REQUIRE(fflush(file) == 0);
    if (hole > 0) FUZZ_REQUIRE(ftruncate(fileno(file), ftell(file) + (off_t)hole) == 0);
    FUZZ_REQUIRE(fclose(file) == 0);
}

void fuzz_write(const char *name, const void *data, size_t bytes, uint64_t hole) { finish(start(name, data, bytes), hole); }

void fuzz_write_safetensors(const char *name, const char *header, uint64_t hole)
{
    size_t bytes = strlen(header);
    uint8_t length[8];
    for (unsigned i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)bytes >> (8 * i));
    FILE *file = start(name, length, sizeof length);
    FUZZ_REQUIRE(fwrite(header, 1, bytes, file) == bytes);
    finish(file, hole);
}

/* The data of a tensor that was accepted are within its file. */
static void check_data(const ofl_model *model, uint32_t index, uint64_t bytes)
{
    char last;
    if (ofl_model_format_get(model) == OFL_FORMAT_DESCRIPTION || bytes == 0 || index >= 32) return;
    FUZZ_REQUIRE(ofl_model_tensor_read(model, index, bytes - 1, 1, &last) == OFL_OK);
}

/* Rows fill each tensor, blocks are within the shape, used tensors come first and in order. */
static void check_tensors(const ofl_model *model, const ofl_model_shape *shape)
{
    uint64_t total = 0;
    int32_t last = OFL_BLOCK_INPUT;
    bool unused = false;
    for (uint32_t i = 0; i < ofl_model_tensor_count(model); i++) {
        ofl_tensor_info info = {.struct_size = sizeof info};
        FUZZ_REQUIRE(ofl_model_tensor_get(model, i, &info) == OFL_OK);
        FUZZ_REQUIRE(info.row_count * info.row_bytes == info.bytes && info.n_dims <= OFL_MAX_DIMS);
        FUZZ_REQUIRE(info.bytes <= UINT64_MAX - total);
        total += info.bytes;
        if (info.tensor_class == OFL_CLASS_UNUSED) unused = true;
        else FUZZ_REQUIRE(!unused && info.block >= last && info.block <= (int64_t)shape->block_count);
        if (!unused) last = info.block;
        check_data(model, i, info.bytes);
    }
}

/* The cache is the sum of its layers and never shrinks as the context grows. */
static void check_kv(const ofl_model *model, const ofl_model_shape *shape)
{
    static const uint64_t contexts[] = {0, 1, 4096, 1048576};
    uint64_t before = 0;
    for (size_t c = 0; c < sizeof contexts / sizeof contexts[0]; c++) {
        uint64_t all = 0, sum = 0, layer = 0;
        if (ofl_model_kv_bytes(model, OFL_KV_Q8_0, contexts[c], &all) != OFL_OK) return;
        for (uint32_t i = 0; i < shape->block_count; i++) {
            FUZZ_REQUIRE(ofl_model_kv_layer_bytes(model, i, OFL_KV_Q8_0, contexts[c], &layer) == OFL_OK);
            sum += layer;
        }
        FUZZ_REQUIRE(sum == all && all >= before);
        before = all;
    }
}

void fuzz_open(const char *path)
{
    ofl_model *model = NULL, *again = NULL;
    ofl_status status = ofl_model_open(path, &model);
    FUZZ_REQUIRE((status == OFL_OK) == (model != NULL));
    if (status != OFL_OK) {
        FUZZ_REQUIRE(ofl_error_message()[0] != '\0' && status != OFL_ERROR_HOST_MEMORY);
        return;
    }
    fuzz_accept();
    ofl_model_shape shape = {.struct_size = sizeof shape};
    FUZZ_REQUIRE(ofl_model_shape_get(model, &shape) == OFL_OK && ofl_model_tensor_count(model) > 0);
    check_tensors(model, &shape);
    check_kv(model, &shape);
    double experts = -1;
    uint64_t stored = 0;
    FUZZ_REQUIRE(ofl_model_expert_bytes(model, &stored) == OFL_OK);
    FUZZ_REQUIRE(ofl_model_expert_bytes_per_step(model, 3, &experts) == OFL_OK && experts >= 0 && experts <= (double)stored);
    FUZZ_REQUIRE(ofl_model_open(path, &again) == OFL_OK && strcmp(ofl_model_identity(model), ofl_model_identity(again)) == 0);
    ofl_model_destroy(again);
    ofl_model_destroy(model);
}
