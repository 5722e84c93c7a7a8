/* Text to token ids and back: byte-level BPE and score-merged BPE, from a GGUF's metadata or a folder's tokenizer.json.
 * Threads: read-only once opened, but for the word cache: one thread at a time. */
#ifndef OFLOAD_BATCH_TOKENIZER_H
#define OFLOAD_BATCH_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ofload/model.h>

typedef struct tokenizer tokenizer;

typedef struct token_list {
    int32_t *ids; /* owned; tokens_free */
    size_t count, capacity;
} token_list;

/* OFL_ERROR_UNSUPPORTED names the tokenizer or pre-tokenizer that is unknown. */
ofl_status tokenizer_open(const ofl_model *model, tokenizer **out);
void tokenizer_close(tokenizer *t);

/* Appends. markup = false: user text, "<|im_end|>" in it is plain text; true: the template's own text, added tokens become their ids. text must be valid UTF-8
 * (OFL_ERROR_ARGUMENT). Added tokens that are no control tokens ("<think>") are found in any text. The text is taken as the start of a prompt: where the
 * tokenizer puts a space there, it is put. */
ofl_status tokenizer_encode(tokenizer *t, const char *text, size_t bytes, bool markup, token_list *out);
ofl_status tokens_push(token_list *list, int32_t id);
void tokens_free(token_list *list);

/* The bytes a token adds to the text: "" for control tokens and ids that have no text. Borrowed. */
const char *tokenizer_bytes(const tokenizer *t, int32_t id, size_t *bytes_out);
/* Id of an added/special token by its text, or -1. */
int32_t tokenizer_find(const tokenizer *t, const char *text);
bool tokenizer_is_end(const tokenizer *t, int32_t id);  /* any of the model's end-of-answer tokens */
int32_t tokenizer_begin(const tokenizer *t);            /* BOS id to put before every prompt, or -1 */
uint32_t tokenizer_size(const tokenizer *t);            /* ids below this have a meaning; logits beyond are masked */
/* The chat template's text, or NULL. */
const char *tokenizer_template(const tokenizer *t);

#endif
