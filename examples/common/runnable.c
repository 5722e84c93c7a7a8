#include "common/runnable.h"

#include <stddef.h>
#include <string.h>

static const char *const architectures[] = {"llama", "qwen2", "qwen3"};

bool runnable_architecture(const char *architecture)
{
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        if (strcmp(architectures[i], architecture) == 0) return true;
    }
    return false;
}

const char *runnable_names(void) { return "llama, qwen2 and qwen3"; }
