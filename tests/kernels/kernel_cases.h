/* Kernels at random shapes, as data: a case lies in one piece of memory that may be moved to a device, and knows its answer by the CPU's
 * back end. Include support/support.h first. */
#ifndef OFLOAD_TEST_KERNEL_CASES_H
#define OFLOAD_TEST_KERNEL_CASES_H

#include "batch/cuda/kernel_launch.h"

#define CASE_LAUNCHES 8u
#define CASE_OUTPUTS 12u
#define CASE_GAPS 64u

typedef enum case_kind {
    CASE_F32,
    CASE_BF16,
    CASE_WORDS, /* equal bits */
    CASE_CHOICES,
    CASE_CACHE  /* not looked at by itself: what is read from it is */
} case_kind;

typedef struct case_output { /* what the kernels may write; all else must stay as it is */
    case_kind kind;
    void *at;
    uint64_t count, bytes;
    double within; /* of the largest value of its row of `columns` */
    uint64_t columns;
} case_output;

typedef struct kernel_case {
    uint8_t *base;
    uint64_t size, used;
    struct { uint64_t at, bytes; } gaps[CASE_GAPS]; /* between what was taken */
    uint32_t gap_count;
    ptrdiff_t shift; /* what the kernels' pointers have over those here */
    uint64_t seed;
    char name[160];  /* shape and seed */
    kernel_launch launches[CASE_LAUNCHES];
    uint32_t launch_count;
    case_output outputs[CASE_OUTPUTS];
    uint32_t output_count;
    void *answer; /* of its own kind */
    void (*check)(const struct kernel_case *c); /* after a run, here: against the CPU's back end */
} kernel_case;

/* Makes the case of a seed: the same each time. */
typedef void (*case_maker)(kernel_case *c);
typedef struct case_family {
    const char *name;
    case_maker make;
    uint32_t count; /* seeds 1 … count */
} case_family;
extern const case_family case_families[];
extern const uint32_t case_family_count;

void case_open(kernel_case *c);
/* Makes it anew. */
void case_make(kernel_case *c, const case_family *family, uint64_t seed, ptrdiff_t shift);
void case_close(kernel_case *c);

/* Runs it on the CPU; under the address sanitizer nothing outside of the rooms may be touched. */
void case_run(const kernel_case *c, bool backwards);

/* For makers. Room with gaps around it; 16-byte aligned and then `skew` bytes more. */
void *case_room(kernel_case *c, uint64_t bytes, uint32_t skew);
float *case_floats(kernel_case *c, uint64_t count, float size);
void *case_output_room(kernel_case *c, case_kind kind, uint64_t count, uint64_t columns, double within);
/* Kept until the case is closed or made anew; not part of the memory. */
void *case_answer(kernel_case *c, uint64_t bytes);
uint64_t case_random(kernel_case *c);
uint32_t case_below(kernel_case *c, uint32_t bound);
float case_uniform(kernel_case *c); /* −1 … 1 */
kernel_launch *case_launch(kernel_case *c);
/* The address that a kernel sees. */
#define CASE_AT(c, pointer) ((void *)((pointer) == NULL ? NULL : (uint8_t *)(uintptr_t)(pointer) + (c)->shift))
/* Fails when values differ by more than `within` of the row's largest. */
void case_compare(const kernel_case *c, case_kind kind, const void *got, const void *wanted, uint64_t count, uint64_t columns,
                  double within);

void case_make_expand(kernel_case *c);
void case_make_embed(kernel_case *c);
void case_make_norm(kernel_case *c);
void case_make_gate(kernel_case *c);
void case_make_add(kernel_case *c);
void case_make_attention(kernel_case *c);
void case_make_sample(kernel_case *c);

#endif
