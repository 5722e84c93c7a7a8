/* A model out of stacks: of each kind of weight, one matrix a block, at even distances in the caller's memory. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

static const char *const role_texts[] = {
#define ROLE_TEXT(name, text) text,
    OFL_ROLE_LIST(ROLE_TEXT)
#undef ROLE_TEXT
};

typedef struct blocks {
    ofl_model_builder *builder;
    const ofl_stack *stacks;
    uint32_t count, block_count;
    bool tied; /* the embedding's bytes are the output head's as well */
} blocks;

static bool is_input(const ofl_stack *stack) { return stack->role == OFL_ROLE_EMBEDDING; }

static bool is_output(const ofl_stack *stack)
{
    return stack->role == OFL_ROLE_OUTPUT_NORM || stack->role == OFL_ROLE_OUTPUT || stack->role == OFL_ROLE_OUTPUT_BIAS;
}

static const ofl_stack *first_of(const blocks *b, ofl_tensor_role role)
{
    for (uint32_t i = 0; i < b->count; i++) {
        if (b->stacks[i].role == role) return &b->stacks[i];
    }
    return NULL;
}

/* Sets b->tied, which must be what the caller says, if it says it. */
static ofl_status find_tie(blocks *b, bool said)
{
    const ofl_stack *embedding = first_of(b, OFL_ROLE_EMBEDDING), *head = first_of(b, OFL_ROLE_OUTPUT);
    b->tied = embedding != NULL && head != NULL && embedding->data == head->data;
    if (said && !b->tied)
        return ofl_fail(OFL_ERROR_ARGUMENT, "model from stacks: the shape says tied_output, but no output head lies where the embedding "
                                            "does; add it as a stack of the same data, or leave tied_output 0");
    if (b->tied && (embedding->rows != head->rows || embedding->columns != head->columns || embedding->dtype != head->dtype))
        return ofl_fail(OFL_ERROR_ARGUMENT,
                        "model from stacks: embedding and output head lie at one address, but differ in rows, columns or type");
    return OFL_OK;
}

/* Of two stacks with one role the second gets a number. */
static uint32_t alike_before(const blocks *b, uint32_t index)
{
    uint32_t alike = 0;
    for (uint32_t i = 0; i < index; i++) alike += b->stacks[i].role == b->stacks[index].role;
    return alike;
}

static ofl_status check(const blocks *b, uint32_t index)
{
    const ofl_stack *stack = &b->stacks[index];
    if (stack->data == NULL || stack->rows == 0 || stack->columns == 0)
        return ofl_fail(OFL_ERROR_ARGUMENT, "stack %u: it has no data, no rows or no columns", (unsigned)index);
    if ((unsigned)stack->role >= OFL_ROLE_COUNT)
        return ofl_fail(OFL_ERROR_ARGUMENT, "stack %u: role %d is not known", (unsigned)index, (int)stack->role);
    return OFL_OK;
}

/* Where a block's matrix lies: OFL_ERROR_OVERFLOW beyond 64 bits or the end of memory, OFL_ERROR_ARGUMENT where blocks would overlap. */
static ofl_status place(const ofl_stack *stack, uint32_t block, const void **out)
{
    uint64_t elements, bytes, offset, end;
    if (!ofl_mul_u64(stack->rows, stack->columns, &elements))
        return ofl_fail(OFL_ERROR_OVERFLOW, "stack: rows times columns overflow 64 bits");
    ofl_status status = ofl_dtype_bytes(stack->dtype, elements, &bytes);
    if (status != OFL_OK) return status;
    uint64_t stride = stack->stride_bytes == 0 ? bytes : stack->stride_bytes;
    if (stride < bytes)
        return ofl_fail(OFL_ERROR_ARGUMENT, "stack: blocks are %llu bytes apart, but a matrix takes %llu; stride_bytes counts bytes",
                        (unsigned long long)stride, (unsigned long long)bytes);
    if (!ofl_mul_u64(stride, block, &offset) || !ofl_add_u64(offset, bytes, &end) || end > UINTPTR_MAX - (uintptr_t)stack->data)
        return ofl_fail(OFL_ERROR_OVERFLOW, "stack: block %u lies beyond all memory", (unsigned)block);
    *out = (const void *)((uintptr_t)stack->data + offset);
    return OFL_OK;
}

static ofl_status add(const blocks *b, uint32_t index, int32_t block, uint32_t nth)
{
    const ofl_stack *stack = &b->stacks[index];
    char name[96];
    uint32_t alike = alike_before(b, index);
    int used = snprintf(name, sizeof name, "%d.%s", (int)block, role_texts[stack->role]);
    if (alike > 0) (void)snprintf(name + used, sizeof name - (size_t)used, ".%u", (unsigned)alike);
    ofl_tensor_source tensor = {.struct_size = sizeof tensor, .name = name, .dtype = stack->dtype, .role = stack->role, .block = block,
                                .n_dims = stack->rows > 1 ? 2 : 1, .dims = {stack->columns, stack->rows > 1 ? stack->rows : 0}};
    tensor.tensor_class = is_input(stack) ? OFL_CLASS_LOOKUP : OFL_CLASS_DENSE;
    ofl_status status = place(stack, nth, &tensor.data);
    return status == OFL_OK ? ofl_model_builder_add_tensor(b->builder, &tensor) : status;
}

/* The tied matrix is stored once: dense, as the head, and its rows are looked up, too. */
static ofl_status add_output(const blocks *b, uint32_t index)
{
    const ofl_stack *stack = &b->stacks[index];
    ofl_tensor_source tensor = {.struct_size = sizeof tensor, .name = "tied", .dtype = stack->dtype, .tensor_class = OFL_CLASS_DENSE,
                                .role = OFL_ROLE_EMBEDDING, .block = (int32_t)b->block_count, .also_lookup = 1, .n_dims = 2,
                                .dims = {stack->columns, stack->rows}, .data = stack->data};
    bool is_head = stack->role == OFL_ROLE_OUTPUT && b->tied;
    return is_head ? ofl_model_builder_add_tensor(b->builder, &tensor) : add(b, index, (int32_t)b->block_count, 0);
}

static ofl_status add_all(const blocks *b)
{
    ofl_status status = OFL_OK;
    for (uint32_t i = 0; i < b->count && status == OFL_OK; i++) {
        status = check(b, i);
        if (status == OFL_OK && is_input(&b->stacks[i]) && !b->tied) status = add(b, i, OFL_BLOCK_INPUT, 0);
    }
    for (uint32_t block = 0; block < b->block_count; block++) {
        for (uint32_t i = 0; i < b->count && status == OFL_OK; i++) {
            if (!is_input(&b->stacks[i]) && !is_output(&b->stacks[i])) status = add(b, i, (int32_t)block, block);
        }
    }
    for (uint32_t i = 0; i < b->count && status == OFL_OK; i++) {
        if (is_output(&b->stacks[i])) status = add_output(b, i);
    }
    return status;
}

ofl_status ofl_model_from_stacks(const char *name, const ofl_model_shape *shape, const ofl_stack *stacks, uint32_t count, ofl_model **out)
{
    blocks b = {.stacks = stacks, .count = count};
    ofl_model_shape full;
    if (out != NULL) *out = NULL;
    if (stacks == NULL || count == 0) return ofl_fail(OFL_ERROR_ARGUMENT, "model from stacks: none given");
    ofl_status status = ofl_struct_in(&full, sizeof full, shape, "ofl_model_shape");
    if (status != OFL_OK) return status;
    full.struct_size = sizeof full;
    status = find_tie(&b, full.tied_output != 0);
    if (status != OFL_OK) return status;
    full.tied_output = b.tied;
    b.block_count = full.block_count;
    status = ofl_model_builder_create(name, "", &full, &b.builder);
    if (status != OFL_OK) return status;
    status = add_all(&b);
    if (status == OFL_OK) return ofl_model_builder_finish(b.builder, out);
    ofl_model_builder_destroy(b.builder);
    return status;
}
