/* Any bytes as the safetensors file of a folder: refused with a sentence, or a model that keeps its promises. Bytes that begin with { are a
 * header alone: its length is put before it, and a hole as long as its largest data_offset says after it. */
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG                                                                                                                             \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"quantization_config\":{\"bits\":4}}"
#define MOST_DATA (UINT64_C(1) << 40)

static uint64_t data_bytes(const char *header)
{
    uint64_t most = 0;
    for (const char *at = strstr(header, "data_offsets"); at != NULL; at = strstr(at, "data_offsets")) {
        at += strcspn(at, "[{}");
        for (; *at != '\0' && *at != ']' && *at != '}'; at++) {
            if (*at < '0' || *at > '9') continue;
            char *end;
            uint64_t value = strtoull(at, &end, 10);
            if (value > most && value <= MOST_DATA) most = value;
            at = end - 1;
        }
    }
    return most;
}

void fuzz_one(const uint8_t *data, size_t bytes)
{
    fuzz_write("config.json", CONFIG, sizeof CONFIG - 1, 0);
    if (bytes > 0 && data[0] == '{') {
        char *header = strndup((const char *)data, bytes);
        FUZZ_REQUIRE(header != NULL);
        fuzz_write_safetensors("model.safetensors", header, data_bytes(header));
        free(header);
    } else {
        fuzz_write("model.safetensors", data, bytes, 0);
    }
    fuzz_open(fuzz_path(""));
}
