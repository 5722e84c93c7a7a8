/* A fuzz target is one file: fuzz_NAME.c with fuzz_one, the property it checks at its head. Built as a libFuzzer program (-DOFLOAD_FUZZ=ON)
 * and always as a program that replays files. */
#ifndef OFLOAD_TEST_FUZZ_H
#define OFLOAD_TEST_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ofload/ofload.h>

/* Given by the target. */
void fuzz_one(const uint8_t *data, size_t bytes);

/* A property that does not hold ends the program, so that the fuzzer keeps the input. */
#define FUZZ_REQUIRE(condition)                                                 \
    do {                                                                        \
        if (!(condition)) fuzz_broken(#condition, __FILE__, __LINE__);          \
    } while (0)
_Noreturn void fuzz_broken(const char *condition, const char *file, int line);

/* How many inputs were accepted so far: a corpus of which nothing is accepted has become stale. */
void fuzz_accept(void);
uint64_t fuzz_accepted(void);

/* A folder of this process, removed at exit; fuzz_path: a file in it (static, of the next eight calls). */
const char *fuzz_path(const char *name);
/* Writes a whole file there, then `hole` bytes that are not stored. */
void fuzz_write(const char *name, const void *data, size_t bytes, uint64_t hole);
/* A safetensors file there: its length field, this header, and a hole for its data. */
void fuzz_write_safetensors(const char *name, const char *header, uint64_t hole);

/* Opens it. Refused: a sentence is set. Accepted: what every model promises holds. */
void fuzz_open(const char *path);

#endif
