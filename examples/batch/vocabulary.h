/* The tokens of a model: their bytes, their kinds, and how to find them. Filled once, then indexed, then read only. */
#ifndef OFLOAD_BATCH_VOCABULARY_H
#define OFLOAD_BATCH_VOCABULARY_H

#include "batch/grow.h"
#include "common/app_error.h"

typedef enum token_kind {
    TOKEN_NONE,    /* an id without meaning */
    TOKEN_NORMAL,  /* what text is made of */
    TOKEN_ADDED,   /* found as a whole in any text, before everything else */
    TOKEN_CONTROL, /* found in markup only; adds nothing to an answer */
    TOKEN_BYTE     /* one byte, for characters that no token has */
} token_kind;

typedef struct token {
    size_t offset, shown_offset; /* into text: as it is looked up, and as it is shown */
    uint32_t bytes, shown_bytes;
    float score;
    token_kind kind;
} token;

typedef struct vocabulary {
    buffer text;
    token *tokens;
    size_t count, capacity; /* ids below count may be used */
    int32_t *slots;         /* normal tokens by hash of their bytes, -1 free */
    size_t slot_count;
    int32_t *added;         /* added and control tokens, sorted by bytes */
    size_t added_count;
    size_t longest;         /* bytes of the longest normal token */
    int32_t byte_ids[256];  /* byte tokens, -1 where there is none */
    bool starts[2][256];    /* first bytes of added tokens; [1]: of control tokens too */
} vocabulary;

#define VOCABULARY_MAX_ID 16777215

/* Sets token `id`; ids may come in any order, a second setting counts. bytes: as looked up; shown: as an answer shows it. */
ofl_status vocabulary_set(vocabulary *v, int64_t id, token_kind kind, const char *bytes, size_t count, const char *shown, size_t shown_count);
/* After all tokens are set. Of two normal tokens with the same bytes the first counts. */
ofl_status vocabulary_index(vocabulary *v);
void vocabulary_free(vocabulary *v);

/* A normal token by its bytes; -1: none. */
int32_t vocabulary_find(const vocabulary *v, const char *bytes, size_t count);
/* An added or control token by its text; -1: none. */
int32_t vocabulary_find_added(const vocabulary *v, const char *bytes, size_t count);
/* The longest added token (control = true: or control token) that text starts with; -1: none. */
int32_t vocabulary_match(const vocabulary *v, const char *text, size_t bytes, bool control, size_t *length_out);

#endif
