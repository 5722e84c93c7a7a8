/* The inside of chat templates: reading what a template's text says, and writing prompts. */
#ifndef OFLOAD_BATCH_CHAT_PARTS_H
#define OFLOAD_BATCH_CHAT_PARTS_H

#include "batch/chat_template.h"
#include "batch/tokenizer_parts.h"

/* NULL contains nothing. */
bool template_has(const char *text, const char *part);
bool template_has_any(const char *text, const char *const *parts, size_t count);
/* The constant text that follows `marker` in the template up to `end` ("": to the end of its string): from the first place where marker and end stand in one
 * string, or both outside of code, and what lies between is not empty. false: there is none, and out is as it was. */
bool template_constant(const char *text, const char *marker, const char *end, buffer *out, bool *memory_out);
/* What the template says where it refuses: the text of its first raise_exception that has both parts in it, cut to `why_bytes`; false: none has. */
bool template_raises(const char *text, const char *part, const char *other, char *why, size_t why_bytes);

/* A prompt being written. Plain text is gathered up to the next control token, so that words are cut as in the whole text. The first failure stays. */
typedef struct prompt {
    tokenizer *t;
    token_list *out;
    const char *template_text; /* may be NULL */
    buffer text;
    size_t start; /* text that follows this many tokens of `out` starts a prompt */
    ofl_status status;
} prompt;

void prompt_text(prompt *p, const char *text, size_t bytes);
void prompt_words(prompt *p, const char *text);
/* A control token where the vocabulary has it, else its text. */
void prompt_control(prompt *p, const char *text);
/* BOS: the tokenizer's, or this one where the family's prompts always have it (NULL: they do not). */
void prompt_begin(prompt *p, const char *by_family);
void prompt_message(prompt *p, const chat_message *message, bool trim);

typedef enum chat_role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, ROLE_UNKNOWN } chat_role;
chat_role chat_role_of(const chat_message *message);

void chatml_write(prompt *p, const chat_message *messages, size_t count);
void llama3_write(prompt *p, const chat_message *messages, size_t count);
void mistral_write(prompt *p, const chat_message *messages, size_t count);
void gemma_write(prompt *p, const chat_message *messages, size_t count);

#endif
