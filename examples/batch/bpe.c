#include "batch/bpe.h"

#include "common/utf8.h"

#define CACHE_SLOTS 16384u
#define CACHE_BYTES 30
#define CACHE_IDS 8

struct bpe_pair {
    int32_t left, right; /* left -1: free */
    int32_t merged;
    uint32_t rank;
};

struct bpe_symbol {
    uint32_t start, bytes;  /* of the word; bytes 0: merged into the one before */
    int32_t previous, next; /* -1: none */
    int32_t id;             /* -1: text without a token */
};

struct bpe_candidate {
    double cost;
    int32_t left, right;
    uint32_t bytes; /* of both when it was found: another sum now means that one of them has changed */
    int32_t id;
};

struct bpe_cached {
    uint8_t bytes, count; /* bytes 0: free */
    char word[CACHE_BYTES];
    int32_t ids[CACHE_IDS];
};

static ofl_status no_memory(void) { return app_fail(OFL_ERROR_HOST_MEMORY, "tokenizer: out of memory"); }

ofl_status bpe_init(bpe *b, const vocabulary *words)
{
    *b = (bpe){.words = words, .unknown = -1};
    b->cache = calloc(CACHE_SLOTS, sizeof *b->cache);
    return b->cache == NULL ? no_memory() : OFL_OK;
}

void bpe_free(bpe *b)
{
    free(b->pairs);
    free(b->symbols);
    free(b->heap);
    free(b->cache);
    *b = (bpe){0};
}

static size_t pair_slot(const bpe_pair *pairs, size_t slots, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key = (key ^ key >> 31) * UINT64_C(0x9E3779B97F4A7C15);
    size_t at = (size_t)(key ^ key >> 32) & (slots - 1);
    while (pairs[at].left >= 0 && (pairs[at].left != left || pairs[at].right != right)) at = (at + 1) & (slots - 1);
    return at;
}

static ofl_status grow_pairs(bpe *b)
{
    if (2 * (b->pair_count + 1) <= b->pair_slots) return OFL_OK;
    size_t slots = b->pair_slots == 0 ? 1024 : 2 * b->pair_slots;
    bpe_pair *pairs = malloc(slots * sizeof *pairs);
    if (pairs == NULL) return no_memory();
    for (size_t i = 0; i < slots; i++) pairs[i].left = -1;
    for (size_t i = 0; i < b->pair_slots; i++) {
        if (b->pairs[i].left >= 0) pairs[pair_slot(pairs, slots, b->pairs[i].left, b->pairs[i].right)] = b->pairs[i];
    }
    free(b->pairs);
    b->pairs = pairs;
    b->pair_slots = slots;
    return OFL_OK;
}

static ofl_status find_joined(const vocabulary *words, const char *left, size_t left_bytes, const char *right, size_t right_bytes, int32_t *id_out)
{
    char joined[256], *room = left_bytes + right_bytes <= sizeof joined ? joined : malloc(left_bytes + right_bytes);
    if (room == NULL) return no_memory();
    memcpy(room, left, left_bytes);
    memcpy(room + left_bytes, right, right_bytes);
    *id_out = vocabulary_find(words, room, left_bytes + right_bytes);
    if (room != joined) free(room);
    return OFL_OK;
}

ofl_status bpe_add_merge(bpe *b, uint32_t rank, const char *left, size_t left_bytes, const char *right, size_t right_bytes)
{
    int32_t first = vocabulary_find(b->words, left, left_bytes), second = vocabulary_find(b->words, right, right_bytes);
    if (first < 0 || second < 0 || left_bytes + right_bytes > b->words->longest) return OFL_OK;
    int32_t merged = -1;
    ofl_status status = find_joined(b->words, left, left_bytes, right, right_bytes, &merged);
    if (status == OFL_OK && merged >= 0) status = grow_pairs(b);
    if (status != OFL_OK || merged < 0) return status;
    bpe_pair *pair = &b->pairs[pair_slot(b->pairs, b->pair_slots, first, second)];
    if (pair->left < 0) b->pair_count++;
    *pair = (bpe_pair){first, second, merged, rank};
    return OFL_OK;
}

static bool cheaper(const bpe_candidate *a, const bpe_candidate *b) { return a->cost < b->cost || (a->cost == b->cost && a->left < b->left); }

static ofl_status heap_push(bpe *b, bpe_candidate candidate)
{
    void *heap = b->heap;
    if (!grow(&heap, &b->heap_capacity, b->heap_count + 1, sizeof *b->heap)) return no_memory();
    b->heap = heap;
    size_t at = b->heap_count++;
    for (size_t parent; at > 0 && cheaper(&candidate, &b->heap[parent = (at - 1) / 2]); at = parent) b->heap[at] = b->heap[parent];
    b->heap[at] = candidate;
    return OFL_OK;
}

static bpe_candidate heap_pop(bpe *b)
{
    bpe_candidate top = b->heap[0], moved = b->heap[--b->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < b->heap_count; at = child) {
        if (child + 1 < b->heap_count && cheaper(&b->heap[child + 1], &b->heap[child])) child++;
        if (!cheaper(&b->heap[child], &moved)) break;
        b->heap[at] = b->heap[child];
    }
    if (b->heap_count != 0) b->heap[at] = moved;
    return top;
}

/* Puts the pair that starts at symbol `left` up for merging, if it is one. */
static ofl_status consider(bpe *b, const char *word, int32_t left)
{
    if (left < 0 || b->symbols[left].next < 0) return OFL_OK;
    const bpe_symbol *first = &b->symbols[left], *second = &b->symbols[first->next];
    bpe_candidate candidate = {0, left, first->next, first->bytes + second->bytes, -1};
    if (b->by_score) {
        if (first->start + first->bytes != second->start) return OFL_OK;
        candidate.id = vocabulary_find(b->words, word + first->start, candidate.bytes);
        if (candidate.id >= 0) candidate.cost = -(double)b->words->tokens[candidate.id].score;
    } else if (b->pair_slots != 0 && first->id >= 0 && second->id >= 0) {
        const bpe_pair *pair = &b->pairs[pair_slot(b->pairs, b->pair_slots, first->id, second->id)];
        if (pair->left >= 0) {
            candidate.id = pair->merged;
            candidate.cost = pair->rank;
        }
    }
    return candidate.id < 0 ? OFL_OK : heap_push(b, candidate);
}

static ofl_status add_symbol(bpe *b, size_t start, size_t bytes, int32_t id)
{
    void *symbols = b->symbols;
    if (!grow(&symbols, &b->symbol_capacity, b->symbol_count + 1, sizeof *b->symbols)) return no_memory();
    b->symbols = symbols;
    int32_t at = (int32_t)b->symbol_count++;
    b->symbols[at] = (bpe_symbol){(uint32_t)start, (uint32_t)bytes, at - 1, -1, id};
    if (at > 0) b->symbols[at - 1].next = at;
    return OFL_OK;
}

static ofl_status start_from_bytes(bpe *b, const char *word, size_t bytes)
{
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < bytes && status == OFL_OK; i++) {
        int32_t id = vocabulary_find(b->words, word + i, 1);
        if (id < 0) id = b->unknown;
        if (id >= 0) status = add_symbol(b, i, 1, id); /* a byte that the model never learnt cannot be said */
    }
    return status;
}

static ofl_status start_from_characters(bpe *b, const char *word, size_t bytes)
{
    ofl_status status = OFL_OK;
    for (size_t i = 0; i < bytes && status == OFL_OK;) {
        size_t length = utf8_read(word + i, bytes - i).bytes;
        status = add_symbol(b, i, length, vocabulary_find(b->words, word + i, length));
        i += length;
    }
    return status;
}

static ofl_status merge(bpe *b, const char *word, const bpe_candidate *best)
{
    bpe_symbol *left = &b->symbols[best->left], *right = &b->symbols[best->right];
    left->bytes += right->bytes;
    left->id = best->id;
    left->next = right->next;
    right->bytes = 0;
    if (left->next >= 0) b->symbols[left->next].previous = best->left;
    ofl_status status = consider(b, word, left->previous);
    return status == OFL_OK ? consider(b, word, best->left) : status;
}

static ofl_status merge_all(bpe *b, const char *word)
{
    ofl_status status = OFL_OK;
    for (int32_t i = 0; (size_t)i + 1 < b->symbol_count && status == OFL_OK; i++) status = consider(b, word, i);
    while (b->heap_count != 0 && status == OFL_OK) {
        bpe_candidate best = heap_pop(b);
        const bpe_symbol *left = &b->symbols[best.left], *right = &b->symbols[best.right];
        if (left->bytes == 0 || left->next != best.right || left->bytes + right->bytes != best.bytes) continue;
        status = merge(b, word, &best);
    }
    return status;
}

/* Text without a token: its byte tokens if there is one for each, else the unknown token, else nothing. */
static ofl_status push_fallback(const bpe *b, const char *text, size_t bytes, bool after_unknown, bool *unknown_out, token_list *out)
{
    ofl_status status = OFL_OK;
    bool all = true;
    for (size_t i = 0; i < bytes; i++) all = all && b->words->byte_ids[(unsigned char)text[i]] >= 0;
    for (size_t i = 0; i < bytes && all && status == OFL_OK; i++) status = tokens_push(out, b->words->byte_ids[(unsigned char)text[i]]);
    *unknown_out = !all;
    if (!all && b->unknown >= 0 && !(after_unknown && b->fuse_unknown)) status = tokens_push(out, b->unknown);
    return status;
}

static ofl_status push_symbols(const bpe *b, const char *word, token_list *out)
{
    ofl_status status = OFL_OK;
    bool unknown = false;
    for (int32_t at = b->symbol_count == 0 ? -1 : 0; at >= 0 && status == OFL_OK; at = b->symbols[at].next) {
        const bpe_symbol *symbol = &b->symbols[at];
        if (symbol->id < 0) {
            status = push_fallback(b, word + symbol->start, symbol->bytes, unknown, &unknown, out);
            continue;
        }
        unknown = false;
        status = tokens_push(out, symbol->id);
    }
    return status;
}

static bpe_cached *cache_slot(const bpe *b, const char *word, size_t bytes)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)word[i]) * 16777619u;
    return &b->cache[(hash ^ hash >> 15) % CACHE_SLOTS];
}

static void remember(bpe_cached *slot, const char *word, size_t bytes, const int32_t *ids, size_t count)
{
    if (count > CACHE_IDS) return;
    slot->bytes = (uint8_t)bytes;
    slot->count = (uint8_t)count;
    memcpy(slot->word, word, bytes);
    if (count != 0) memcpy(slot->ids, ids, count * sizeof *ids);
}

static ofl_status encode_anew(bpe *b, const char *word, size_t bytes, token_list *out)
{
    if (bytes > INT32_MAX) return app_fail(OFL_ERROR_ARGUMENT, "tokenizer: a word of %zu bytes is too long", bytes);
    b->symbol_count = 0;
    b->heap_count = 0;
    ofl_status status = b->characters ? start_from_characters(b, word, bytes) : start_from_bytes(b, word, bytes);
    if (status == OFL_OK) status = merge_all(b, word);
    return status == OFL_OK ? push_symbols(b, word, out) : status;
}

ofl_status bpe_encode(bpe *b, const char *word, size_t bytes, token_list *out)
{
    ofl_status status = OFL_OK;
    int32_t id = b->whole_words ? vocabulary_find(b->words, word, bytes) : -1;
    if (bytes == 0) return OFL_OK;
    if (id >= 0) return tokens_push(out, id);
    if (bytes > CACHE_BYTES) return encode_anew(b, word, bytes, out);
    bpe_cached *slot = cache_slot(b, word, bytes);
    if (slot->bytes == bytes && memcmp(slot->word, word, bytes) == 0) {
        for (size_t i = 0; i < slot->count && status == OFL_OK; i++) status = tokens_push(out, slot->ids[i]);
        return status;
    }
    size_t before = out->count;
    status = encode_anew(b, word, bytes, out);
    if (status == OFL_OK) remember(slot, word, bytes, out->ids + before, out->count - before);
    return status;
}
