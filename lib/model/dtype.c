#include "model/model.h"

#include <string.h>

typedef struct dtype_row {
    ofl_dtype dtype;
    const char *name;
    uint32_t elements, bits;
} dtype_row;

static const dtype_row rows[] = {
#define ROW(name, value, text, elements, bits) {OFL_DTYPE_##name, text, elements, bits},
    OFL_DTYPE_LIST(ROW)
#undef ROW
};

static const dtype_row *find(uint64_t dtype)
{
    for (size_t i = 0; i < OFL_COUNT_OF(rows); i++) {
        if ((uint64_t)rows[i].dtype == dtype) return &rows[i];
    }
    return NULL;
}

bool ofl_dtype_known(uint64_t dtype) { return find(dtype) != NULL; }

bool ofl_dtype_from_name(const char *name, ofl_dtype *out)
{
    for (size_t i = 0; i < OFL_COUNT_OF(rows); i++) {
        if (strcmp(rows[i].name, name) != 0) continue;
        *out = rows[i].dtype;
        return true;
    }
    return false;
}

const char *ofl_dtype_name(ofl_dtype dtype)
{
    const dtype_row *row = find(dtype);
    return row != NULL ? row->name : "?";
}

uint32_t ofl_dtype_block_elements(ofl_dtype dtype)
{
    const dtype_row *row = find(dtype);
    return row != NULL ? row->elements : 0;
}

uint32_t ofl_dtype_block_bits(ofl_dtype dtype)
{
    const dtype_row *row = find(dtype);
    return row != NULL ? row->bits : 0;
}

int ofl_dtype_holds_weights(ofl_dtype dtype)
{
    switch (dtype) {
    case OFL_DTYPE_I8:
    case OFL_DTYPE_I16:
    case OFL_DTYPE_I32:
    case OFL_DTYPE_I64:
    case OFL_DTYPE_BOOL:
    case OFL_DTYPE_U8:
    case OFL_DTYPE_U16:
    case OFL_DTYPE_U32:
    case OFL_DTYPE_U64:
    case OFL_DTYPE_C64:
    case OFL_DTYPE_F8_E8M0: return 0;
    default: return find(dtype) != NULL;
    }
}

ofl_status ofl_dtype_bytes(ofl_dtype dtype, uint64_t elements, uint64_t *bytes_out)
{
    const dtype_row *row = find(dtype);
    if (bytes_out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "bytes of a data type: no place for the result given");
    if (row == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "data type %d is not known", (int)dtype);
    if (elements % row->elements != 0)
        return ofl_fail(OFL_ERROR_ARGUMENT, "%llu elements of %s are no whole number of blocks of %u", (unsigned long long)elements,
                        row->name, (unsigned)row->elements);
    uint64_t blocks = elements / row->elements, bytes;
    if (row->bits % 8 == 0) {
        if (!ofl_mul_u64(blocks, row->bits / 8, &bytes)) goto overflow;
    } else {
        /* eight elements take `bits` bytes */
        if (blocks % 8 * row->bits % 8 != 0)
            return ofl_fail(OFL_ERROR_ARGUMENT, "%llu elements of %s end within a byte", (unsigned long long)elements, row->name);
        if (!ofl_mul_u64(blocks / 8, row->bits, &bytes) || !ofl_add_u64(bytes, blocks % 8 * row->bits / 8, &bytes)) goto overflow;
    }
    *bytes_out = bytes;
    return OFL_OK;
overflow:
    return ofl_fail(OFL_ERROR_OVERFLOW, "%llu elements of %s take more bytes than 64 bits can count", (unsigned long long)elements,
                    row->name);
}
