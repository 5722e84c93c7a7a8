/* Cuts text into words before they are encoded: patterns applied one after another, each to the pieces that the one before left. */
#ifndef OFLOAD_BATCH_PRETOKENIZER_H
#define OFLOAD_BATCH_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/app_error.h"

typedef enum split_behaviour {
    SPLIT_ISOLATED,        /* a match is a piece, what lies between matches too */
    SPLIT_REMOVED,         /* matches are thrown away */
    SPLIT_MERGED_PREVIOUS, /* a match ends the piece before it */
    SPLIT_MERGED_NEXT,     /* a match starts the piece after it */
    SPLIT_CONTIGUOUS       /* neighbouring matches are one piece */
} split_behaviour;

typedef struct pretokenizer pretokenizer;
typedef ofl_status (*pretokenizer_word)(void *context, const char *word, size_t bytes);

/* What a GGUF pre-tokenizer name says beyond its patterns. */
typedef struct pretokenizer_traits {
    bool whole_words; /* a word that is a token is not merged */
    bool begin;       /* prompts start with BOS unless the file says otherwise */
    bool nfc;
    bool characters;  /* spaces are written U+2581 and words are made of characters, not of bytes */
} pretokenizer_traits;

/* No pattern: text is one word. */
ofl_status pretokenizer_create(pretokenizer **out);
void pretokenizer_free(pretokenizer *p);
ofl_status pretokenizer_add(pretokenizer *p, const char *pattern, size_t bytes, split_behaviour behaviour, bool invert);
size_t pretokenizer_steps(const pretokenizer *p);
/* OFL_ERROR_UNSUPPORTED with the name. */
ofl_status pretokenizer_add_named(pretokenizer *p, const char *name, pretokenizer_traits *out);
/* The split at letters, digits and spaces that byte-level tokenizers do unless told otherwise. */
ofl_status pretokenizer_add_byte_level(pretokenizer *p);
/* Calls word for each piece, in order. text is valid UTF-8. */
ofl_status pretokenizer_split(pretokenizer *p, const char *text, size_t bytes, pretokenizer_word word, void *context);

#endif
