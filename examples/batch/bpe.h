/* Byte pair encoding of one word: the cheapest pair of neighbours is merged, the leftmost among equals, until none is left.
 * A heap over a linked list: n log n, so that a word of a megabyte is no trap. */
#ifndef OFLOAD_BATCH_BPE_H
#define OFLOAD_BATCH_BPE_H

#include "batch/tokenizer.h"
#include "batch/vocabulary.h"

typedef struct bpe_pair bpe_pair;
typedef struct bpe_symbol bpe_symbol;
typedef struct bpe_candidate bpe_candidate;
typedef struct bpe_cached bpe_cached;

typedef struct bpe {
    const vocabulary *words;
    bool characters;     /* starts from characters, not from bytes */
    bool by_score;       /* any pair that is a token merges, the highest score first; else the listed merges, first ones first */
    bool whole_words;    /* a word that is a token needs no merging */
    bool fuse_unknown;   /* a run of unknown characters is one unknown token */
    int32_t unknown;     /* for characters without token and byte tokens; -1: they are left out */
    bpe_pair *pairs;     /* by hash */
    size_t pair_slots, pair_count;
    bpe_symbol *symbols; /* of the word at work, kept from word to word */
    size_t symbol_count, symbol_capacity;
    bpe_candidate *heap;
    size_t heap_count, heap_capacity;
    bpe_cached *cache;   /* a fixed number of short words */
} bpe;

ofl_status bpe_init(bpe *b, const vocabulary *words);
/* The next merge of the list, in the vocabulary's bytes; one whose parts or result are no normal tokens can never happen and is left out. */
ofl_status bpe_add_merge(bpe *b, uint32_t rank, const char *left, size_t left_bytes, const char *right, size_t right_bytes);
/* Appends the ids of a word. */
ofl_status bpe_encode(bpe *b, const char *word, size_t bytes, token_list *out);
void bpe_free(bpe *b);

#endif
