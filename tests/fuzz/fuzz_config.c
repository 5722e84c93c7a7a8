/* Any bytes as a folder's config.json: refused with a sentence, or a model that keeps its promises. */
#include "fuzz/fuzz.h"

#define HEADER                                                                                                 \
    "{\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":[10,64],\"data_offsets\":[0,1280]},"         \
    "\"model.layers.0.mlp.experts.0.up_proj.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,2],\"data_offsets\":[1280,1288]}," \
    "\"model.layers.1.post_attention_layernorm.weight\":{\"dtype\":\"BF16\",\"shape\":[64],\"data_offsets\":[1288,1416]},"  \
    "\"model.layers.0.mlp.up_proj.qweight\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[1416,1432]}}"

void fuzz_one(const uint8_t *data, size_t bytes)
{
    static bool written;
    if (!written) fuzz_write_safetensors("model.safetensors", HEADER, 1432);
    written = true;
    fuzz_write("config.json", data, bytes, 0);
    fuzz_open(fuzz_path(""));
}
