/* Any bytes as a GGUF file: refused with a sentence, or a model that keeps its promises and whose metadata can be walked. A file that says
 * it is the first of two finds a good second part. */
#include "fuzz/fuzz.h"

#include <string.h>

#define FIRST "m-00001-of-00002.gguf"
#define SECOND "m-00002-of-00002.gguf"

/* Version 3, no tensors, split.no 1, split.count 2. */
static const uint8_t second[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
                                "\x8\0\0\0\0\0\0\0split.no\2\0\0\0\1\0"
                                "\xb\0\0\0\0\0\0\0split.count\2\0\0\0\2\0";

static int walk(void *context, uint64_t index, const ofl_metadata *value)
{
    uint64_t *expected = context;
    FUZZ_REQUIRE(index == (*expected)++);
    if (value->kind == OFL_METADATA_STRING && value->string != NULL) FUZZ_REQUIRE(value->string[value->count] == '\0');
    return index >= 10000;
}

static void walk_metadata(const char *path)
{
    static const char *const keys[] = {"general.name", "tokenizer.ggml.tokens", "tokenizer.ggml.scores", "llama.attention.head_count_kv",
                                       "nested", "i", "f", "flag"};
    ofl_model *model = NULL;
    if (ofl_model_open(path, &model) != OFL_OK) return;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        ofl_metadata value = {.struct_size = sizeof value};
        uint64_t seen = 0;
        if (ofl_model_metadata_get(model, keys[i], &value) != OFL_OK) continue;
        if (ofl_model_metadata_each(model, keys[i], walk, &seen) == OFL_OK) FUZZ_REQUIRE(seen == value.count);
    }
    ofl_model_destroy(model);
}

void fuzz_one(const uint8_t *data, size_t bytes)
{
    /* as one file, which the ending of a set's part would not be */
    bool part = bytes > 0 && memmem(data, bytes, "split.count", 11) != NULL;
    const char *name = part ? FIRST : "m.gguf";
    if (part) fuzz_write(SECOND, second, sizeof second - 1, 0);
    fuzz_write(name, data, bytes, 0);
    fuzz_open(fuzz_path(name));
    walk_metadata(fuzz_path(name));
}
