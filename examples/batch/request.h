/* One line of the input as a request: everything that shapes the answer, checked; what cannot be honoured is refused by name. */
#ifndef OFLOAD_BATCH_REQUEST_H
#define OFLOAD_BATCH_REQUEST_H

#include "batch/answer.h"
#include "batch/chat_template.h"
#include "batch/jsonl.h"

#define REQUEST_MAX_CHOICES 4

/* Why a line got no answer: becomes the line's error object. */
typedef struct line_error {
    char code[40];
    char message[400];
    char param[80]; /* "" : null */
} line_error;

typedef struct request {
    cJSON *tree;           /* owned: all strings below are borrowed from it */
    const char *custom_id; /* NULL while not known */
    bool chat;             /* else a plain completion */
    chat_message *messages;
    size_t message_count;
    char **joined;         /* owned: contents that came in parts */
    size_t joined_count;
    const char *prompt;    /* plain completions */
    uint32_t max_tokens;   /* 0: not given */
    uint32_t choices;      /* n */
    uint32_t top_k;        /* 0: off */
    double temperature, top_p;
    bool seed_given, ignore_end, logprobs;
    uint32_t top_logprobs; /* the likeliest to name with each token */
    uint64_t seed;
    const char *stops[ANSWER_MAX_STOPS];
    size_t stop_bytes[ANSWER_MAX_STOPS];
    size_t stop_count;
} request;

/* text is changed in place. false: *error says why, and out->custom_id is there if the line had a usable one. request_free in either case. */
bool request_parse(char *text, size_t bytes, request *out, line_error *error);
void request_free(request *r);
/* Fills *error; returns false, for callers that hand it on. */
bool request_refuse(line_error *error, const char *code, const char *param, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The parameters of a body but messages and prompt (request_params.c). */
bool request_read_params(request *r, const cJSON *body, line_error *error);

#endif
