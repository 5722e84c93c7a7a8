/* Any bytes as a description in JSON: refused with a sentence, or a model that keeps its promises. */
#include "fuzz/fuzz.h"

void fuzz_one(const uint8_t *data, size_t bytes)
{
    fuzz_write("d.json", data, bytes, 0);
    fuzz_open(fuzz_path("d.json"));
}
