/* Chat messages to prompt tokens: known templates written out by hand, found by what the model's own template contains. */
#ifndef OFLOAD_BATCH_CHAT_TEMPLATE_H
#define OFLOAD_BATCH_CHAT_TEMPLATE_H

#include "batch/tokenizer.h"

/* CHAT_NONE: no template; the texts of the messages, a newline between two. */
typedef enum chat_template { CHAT_CHATML, CHAT_LLAMA3, CHAT_MISTRAL, CHAT_GEMMA, CHAT_NONE } chat_template;

typedef struct chat_message {
    const char *role;    /* system, developer, user, assistant, tool */
    const char *content; /* UTF-8, `bytes` long */
    size_t bytes;
} chat_message;

/* name NULL: by detection from the tokenizer's template; an unknown one is OFL_ERROR_UNSUPPORTED with what was seen and the names --chat-template takes. */
ofl_status chat_template_choose(const tokenizer *t, const char *name, chat_template *out);
/* Appends the prompt that ends where the assistant is to answer, BOS included once where the model wants it. Message text is plain text, never markup.
 * OFL_ERROR_ARGUMENT: a role or order that the template does not have (the sentence says which). */
ofl_status chat_template_encode(chat_template kind, tokenizer *t, const chat_message *messages, size_t count, token_list *out);

#endif
