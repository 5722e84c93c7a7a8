#include "batch/vocabulary.h"

static ofl_status no_memory(void) { return app_fail(OFL_ERROR_HOST_MEMORY, "tokenizer: out of memory"); }

static ofl_status make_room(vocabulary *v, size_t id)
{
    void *tokens = v->tokens;
    if (!grow(&tokens, &v->capacity, id + 1, sizeof *v->tokens)) return no_memory();
    v->tokens = tokens;
    while (v->count <= id) v->tokens[v->count++] = (token){0};
    return OFL_OK;
}

ofl_status vocabulary_set(vocabulary *v, int64_t id, token_kind kind, const char *bytes, size_t count, const char *shown, size_t shown_count)
{
    if (id < 0 || id > VOCABULARY_MAX_ID) return app_fail(OFL_ERROR_FORMAT, "tokenizer: token id %lld is outside 0…%d", (long long)id, VOCABULARY_MAX_ID);
    if (count > UINT32_MAX || shown_count > UINT32_MAX) return app_fail(OFL_ERROR_FORMAT, "tokenizer: token %lld is %zu bytes long", (long long)id, count);
    ofl_status status = make_room(v, (size_t)id);
    if (status != OFL_OK) return status;
    token t = {v->text.bytes, v->text.bytes, (uint32_t)count, (uint32_t)shown_count, 0, kind};
    if (!buffer_add(&v->text, bytes, count)) return no_memory();
    bool same = shown_count == count && (count == 0 || memcmp(bytes, shown, count) == 0);
    if (!same && shown_count != 0) {
        t.shown_offset = v->text.bytes;
        if (!buffer_add(&v->text, shown, shown_count)) return no_memory();
    }
    v->tokens[id] = t;
    return OFL_OK;
}

static const char *bytes_of(const vocabulary *v, int32_t id) { return v->text.data + v->tokens[id].offset; }

static size_t hash_bytes(const char *bytes, size_t count)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < count; i++) hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001B3);
    return (size_t)(hash ^ hash >> 29);
}

/* The slot of these bytes, or the free one where they belong. */
static size_t find_slot(const vocabulary *v, const char *bytes, size_t count)
{
    size_t at = hash_bytes(bytes, count) & (v->slot_count - 1);
    for (; v->slots[at] >= 0; at = (at + 1) & (v->slot_count - 1)) {
        int32_t id = v->slots[at];
        if (v->tokens[id].bytes == count && (count == 0 || memcmp(bytes_of(v, id), bytes, count) == 0)) break;
    }
    return at;
}

int32_t vocabulary_find(const vocabulary *v, const char *bytes, size_t count)
{
    return count > v->longest || count == 0 ? -1 : v->slots[find_slot(v, bytes, count)];
}

static ofl_status index_normal(vocabulary *v)
{
    size_t wanted = 16;
    while (wanted < 2 * v->count) wanted *= 2;
    v->slots = malloc(wanted * sizeof *v->slots);
    if (v->slots == NULL) return no_memory();
    v->slot_count = wanted;
    for (size_t i = 0; i < wanted; i++) v->slots[i] = -1;
    for (size_t i = 0; i < v->count; i++) {
        const token *t = &v->tokens[i];
        if (t->kind != TOKEN_NORMAL || t->bytes == 0) continue;
        size_t at = find_slot(v, bytes_of(v, (int32_t)i), t->bytes);
        if (v->slots[at] < 0) v->slots[at] = (int32_t)i;
        if (t->bytes > v->longest) v->longest = t->bytes;
    }
    return OFL_OK;
}

static int order(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int by_bytes = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    if (by_bytes != 0) return by_bytes;
    return a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

static int by_text(const void *a, const void *b, void *context)
{
    const vocabulary *v = context;
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    int by_bytes = order(bytes_of(v, left), v->tokens[left].bytes, bytes_of(v, right), v->tokens[right].bytes);
    return by_bytes != 0 ? by_bytes : (left > right) - (left < right);
}

static ofl_status index_added(vocabulary *v)
{
    v->added = malloc((v->count + 1) * sizeof *v->added);
    if (v->added == NULL) return no_memory();
    for (size_t i = 0; i < v->count; i++) {
        const token *t = &v->tokens[i];
        if ((t->kind != TOKEN_ADDED && t->kind != TOKEN_CONTROL) || t->bytes == 0) continue;
        unsigned char first = (unsigned char)*bytes_of(v, (int32_t)i);
        v->added[v->added_count++] = (int32_t)i;
        v->starts[1][first] = true;
        if (t->kind == TOKEN_ADDED) v->starts[0][first] = true;
    }
    qsort_r(v->added, v->added_count, sizeof *v->added, by_text, v);
    return OFL_OK;
}

ofl_status vocabulary_index(vocabulary *v)
{
    for (size_t i = 0; i < 256; i++) v->byte_ids[i] = -1;
    for (size_t i = v->count; i-- > 0;) {
        const token *t = &v->tokens[i];
        if (t->kind == TOKEN_BYTE && t->shown_bytes == 1) v->byte_ids[(unsigned char)v->text.data[t->shown_offset]] = (int32_t)i;
    }
    ofl_status status = index_normal(v);
    return status == OFL_OK ? index_added(v) : status;
}

void vocabulary_free(vocabulary *v)
{
    buffer_free(&v->text);
    free(v->tokens);
    free(v->slots);
    free(v->added);
    *v = (vocabulary){0};
}

/* The first of added[low…high) whose byte at `depth` is at least `wanted`; all of them share the bytes before and are longer than depth. */
static size_t lower_bound(const vocabulary *v, size_t low, size_t high, size_t depth, unsigned wanted)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((unsigned char)bytes_of(v, v->added[middle])[depth] < wanted) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Walks the sorted list as a trie: the range that shares the text's first bytes narrows byte by byte. */
int32_t vocabulary_match(const vocabulary *v, const char *text, size_t bytes, bool control, size_t *length_out)
{
    int32_t found = -1;
    size_t length = 0;
    if (bytes == 0 || !v->starts[control][(unsigned char)text[0]]) return -1;
    size_t low = 0, high = v->added_count;
    for (size_t depth = 0; depth < bytes && low < high; depth++) {
        unsigned wanted = (unsigned char)text[depth];
        low = lower_bound(v, low, high, depth, wanted);
        high = lower_bound(v, low, high, depth, wanted + 1);
        for (; low < high && v->tokens[v->added[low]].bytes == depth + 1; low++) {
            bool usable = control || v->tokens[v->added[low]].kind == TOKEN_ADDED;
            if (!usable || length == depth + 1) continue; /* of equal ones the first counts */
            found = v->added[low];
            length = depth + 1;
        }
    }
    if (found >= 0) *length_out = length;
    return found;
}

int32_t vocabulary_find_added(const vocabulary *v, const char *bytes, size_t count)
{
    size_t length = 0;
    int32_t id = vocabulary_match(v, bytes, count, true, &length);
    return length == count ? id : -1;
}
