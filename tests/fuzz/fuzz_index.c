/* Any bytes as model.safetensors.index.json beside three good files: a sentence, or a model of no other tensors than theirs. */
#include "fuzz/fuzz.h"

#define CONFIG "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4}"
#define TENSOR(name) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}"

void fuzz_one(const uint8_t *data, size_t bytes)
{
    static bool written;
    if (!written) {
        fuzz_write("config.json", CONFIG, sizeof CONFIG - 1, 0);
        fuzz_write_safetensors("a.safetensors", "{" TENSOR("model.norm.weight") "}", 4);
        fuzz_write_safetensors("b.safetensors", "{" TENSOR("x") ",\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12);
        fuzz_write_safetensors("c.safetensors", "{" TENSOR("x") "}", 4);
        written = true;
    }
    fuzz_write("model.safetensors.index.json", data, bytes, 0);
    fuzz_open(fuzz_path(""));
}
