/* The inside of a tokenizer, shared by its readers (GGUF, folder), the encoder and the chat templates. */
#ifndef OFLOAD_BATCH_TOKENIZER_PARTS_H
#define OFLOAD_BATCH_TOKENIZER_PARTS_H

#include "batch/bpe.h"
#include "batch/pretokenizer.h"
#include "batch/tokenizer.h"
#include "batch/vocabulary.h"

#define SPACE_MARK "\xE2\x96\x81" /* U+2581, how spaces are written in tokens made of characters */
#define TOKENIZER_MAX_ENDS 32

typedef enum prefix_when { PREFIX_NEVER, PREFIX_FIRST, PREFIX_ALWAYS } prefix_when;

struct tokenizer {
    vocabulary words;
    bpe merges;
    pretokenizer *splitter;
    bool byte_level;    /* tokens are written in the byte alphabet */
    bool nfc;
    bool mark_spaces;   /* ' ' becomes SPACE_MARK */
    prefix_when prefix; /* a space before the first piece of text, or before every piece between added tokens */
    bool prefix_once;   /* not where one stands already */
    int32_t begin;
    int32_t ends[TOKENIZER_MAX_ENDS];
    size_t end_count;
    char *chat_template; /* owned */
    buffer composed, marked; /* workspace */
};

/* Both fill a zeroed tokenizer whose splitter exists. */
ofl_status tokenizer_load_gguf(tokenizer *t, const ofl_model *model);
ofl_status tokenizer_load_folder(tokenizer *t, const char *folder);
/* tokenizer_open for a folder that may hold no weights. */
ofl_status tokenizer_open_folder(const char *folder, tokenizer **out);

/* Sets a token from its text as a file writes it: by kind, byte alphabet and space marks. */
ofl_status tokenizer_set_token(tokenizer *t, int64_t id, token_kind kind, const char *text, size_t bytes);
/* Byte alphabet to bytes, appended; false where the text has a character that is not in it. */
bool tokenizer_from_alphabet(const char *text, size_t bytes, buffer *out, bool *memory_out);
/* A token that must not come out of anybody's text, whatever the file calls it. normal: the file calls it normal text, so that only names that no text has count. */
bool tokenizer_looks_like_control(const char *text, size_t bytes, bool normal);
/* A set token becomes a control token. */
void tokenizer_make_control(tokenizer *t, int32_t id);
/* A merge as the file writes it. */
ofl_status tokenizer_add_merge(tokenizer *t, uint32_t rank, const char *left, size_t left_bytes, const char *right, size_t right_bytes);
/* After tokens are set: index, merges allowed from here on. */
ofl_status tokenizer_index(tokenizer *t);
ofl_status tokenizer_add_end(tokenizer *t, int64_t id);
/* The well-known end tokens that the vocabulary has as control tokens. */
ofl_status tokenizer_add_known_ends(tokenizer *t);

/* tokenizer_encode of text that starts a prompt (first) or follows other tokens. */
ofl_status tokenizer_encode_part(tokenizer *t, const char *text, size_t bytes, bool markup, bool first, token_list *out);

#endif
