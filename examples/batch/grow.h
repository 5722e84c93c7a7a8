/* Growing arrays and byte buffers of the example driver. */
#ifndef OFLOAD_BATCH_GROW_H
#define OFLOAD_BATCH_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Room for at least `needed` items, by doubling; false with everything untouched when there is no memory. */
static inline bool grow(void **array, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity) return true;
    size_t wanted = *capacity < 16 ? 16 : *capacity;
    while (wanted < needed) {
        if (wanted > SIZE_MAX / 2) return false;
        wanted *= 2;
    }
    if (wanted > SIZE_MAX / size) return false;
    void *grown = realloc(*array, wanted * size);
    if (grown == NULL) return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

typedef struct buffer {
    char *data; /* owned; free() */
    size_t bytes, capacity;
} buffer;

static inline bool buffer_add(buffer *b, const char *data, size_t bytes)
{
    if (bytes > SIZE_MAX - b->bytes) return false;
    void *room = b->data;
    if (!grow(&room, &b->capacity, b->bytes + bytes, 1)) return false;
    b->data = room;
    if (bytes != 0) memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
    return true;
}

static inline void buffer_free(buffer *b)
{
    free(b->data);
    *b = (buffer){0};
}

#endif
