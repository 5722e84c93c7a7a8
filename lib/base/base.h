/* What every room of the library uses: failures with a sentence, checked sizes, allocation, growable structs. */
#ifndef OFLOAD_LIB_BASE_H
#define OFLOAD_LIB_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ofload/status.h>

#define OFL_PAGE_BYTES 4096u /* of host memory, and of files read directly */
#define OFL_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The function that detects a failure says so, once; all above forward the status. Each returns `status`. */
ofl_status ofl_fail(ofl_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
ofl_status ofl_fail_room(ofl_status status, uint64_t needed, uint64_t available, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
ofl_status ofl_fail_code(ofl_status status, int64_t runtime_code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* false on overflow, *out untouched then. */
static inline bool ofl_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a > UINT64_MAX - b) return false;
    *out = a + b;
    return true;
}

static inline bool ofl_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (b != 0 && a > UINT64_MAX / b) return false;
    *out = a * b;
    return true;
}

/* alignment: a power of two. */
static inline bool ofl_align_u64(uint64_t value, uint64_t alignment, uint64_t *out)
{
    uint64_t sum;
    if (!ofl_add_u64(value, alignment - 1, &sum)) return false;
    *out = sum & ~(alignment - 1);
    return true;
}

static inline uint64_t ofl_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t ofl_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
/* Sorts the values. count ≥ 1. */
double ofl_median(double *values, size_t count);

/* Zeroed memory; NULL when there is none, or when a test made this call fail. count × size is checked. Free with ofl_free. */
void *ofl_alloc(uint64_t count, uint64_t size);
/* Grows an array to hold at least `needed` items, by doubling: true, or false with *array untouched. New items are zero. */
bool ofl_grow(void **array, uint64_t *capacity, uint64_t needed, uint64_t size);
char *ofl_copy_string(const char *text, size_t bytes);
/* Bytes of the UTF-8 character that starts here, 1 to 4; 0: none does. */
size_t ofl_character_bytes(const char *text);
/* Whole UTF-8 without control characters: what a terminal and JSON can take from a file that others wrote. */
bool ofl_is_printable(const char *text);
/* In place: what is not printable becomes "?", a byte each. */
void ofl_make_printable(char *text);
void ofl_free(void *pointer);
/* printf into a new string (ofl_free); NULL when out of memory. */
char *ofl_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Tests: let the n-th allocation from now (1 = next) fail, once, on this thread; 0 = off. Returns how many were left. */
uint64_t ofl_fault_allocation(uint64_t nth);

/* A size in a sentence, with its unit: "512 B", "1.500 kB", "10.660 GB". Write ofl_bytes_text(n).text: it lives until the end of the full
 * expression. */
typedef struct ofl_short_text { char text[24]; } ofl_short_text;
ofl_short_text ofl_bytes_text(uint64_t bytes);

/* Growable structs: struct_size is the first uint32_t of each.
 * in: copies what the caller knows into `full` (zeroed first); refuses a size of 0 and a non-zero tail that this library does not know.
 * room: may out be written there? Where it is to be refused before anything is done.
 * out: writes as much of `full` as the caller's struct has room for, leaving its struct_size as it was. */
ofl_status ofl_struct_room(const void *to, const char *name);
ofl_status ofl_struct_in(void *full, size_t full_size, const void *from, const char *name);
ofl_status ofl_struct_out(void *to, const void *full, size_t full_size, const char *name);

#endif
