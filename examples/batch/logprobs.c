#include "batch/logprobs.h"

#include <math.h>
#include <stdio.h>

#include "common/utf8.h"

typedef struct softmax { double best, log_sum; } softmax; /* best NaN: no logit is a number */

static softmax normalise(const float *logits, uint32_t usable)
{
    softmax s = {NAN, 0};
    double sum = 0;
    for (uint32_t i = 0; i < usable; i++) {
        if (!isnan(logits[i]) && !((double)logits[i] <= s.best)) s.best = (double)logits[i];
    }
    for (uint32_t i = 0; i < usable; i++) {
        if (!isnan(logits[i])) sum += exp((double)logits[i] - s.best);
    }
    s.log_sum = log(sum);
    return s;
}

logprob logprob_of(int32_t id, float logit, double best, double log_sum)
{
    double value = (double)logit - best - log_sum;
    bool none = id < 0 || !isfinite(value) || value <= (double)LOGPROBS_NONE;
    return (logprob){id, none ? LOGPROBS_NONE : (float)value + 0.0f}; /* + 0: no −0 */
}

/* The likeliest ids, best first, the lower id among equals. */
static void take_top(logprob *to, uint32_t top, const float *logits, uint32_t usable)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < usable && top > 0; i++) {
        if (isnan(logits[i]) || (count == top && !(logits[i] > to[count - 1].value))) continue;
        uint32_t at = count < top ? count++ : count - 1;
        for (; at > 0 && logits[i] > to[at - 1].value; at--) to[at] = to[at - 1];
        to[at] = (logprob){(int32_t)i, logits[i]};
    }
    for (; count < top; count++) to[count] = (logprob){-1, NAN};
}

void logprobs_of(const float *logits, uint32_t usable, int32_t chosen, uint32_t top, logprob *out)
{
    softmax s = normalise(logits, usable);
    out[0] = (logprob){chosen, logits[chosen]};
    take_top(out + 1, top, logits, usable);
    for (uint32_t i = 0; i <= top; i++) out[i] = logprob_of(out[i].id, out[i].value, s.best, s.log_sum);
}

bool logprobs_add(logprob_list *list, const logprob *entries)
{
    size_t each = 1 + (size_t)list->top;
    void *room = list->entries;
    if (!grow(&room, &list->capacity, (list->tokens + (size_t)1) * each, sizeof *list->entries)) return false;
    list->entries = room;
    memcpy(list->entries + list->tokens++ * each, entries, each * sizeof *entries);
    return true;
}

void logprobs_cut(logprob_list *list, const token_text *text, size_t text_bytes)
{
    size_t each = 1 + (size_t)list->top, at = 0;
    for (uint32_t t = 0; t < list->tokens; t++) {
        size_t bytes;
        (void)text->bytes(text->context, list->entries[t * each].id, &bytes);
        if (at >= text_bytes) list->tokens = t;
        at += bytes;
    }
}

void logprobs_free(logprob_list *list)
{
    free(list->entries);
    *list = (logprob_list){0};
}

static void put_token(json_put *w, const char *bytes, size_t count)
{
    if (utf8_valid(bytes, count) && (count == 0 || memchr(bytes, '\0', count) == NULL)) {
        put_string(w, bytes, count);
        return;
    }
    put(w, "\"bytes:");
    for (size_t i = 0; i < count; i++) put_format(w, "\\\\x%02x", (unsigned char)bytes[i]);
    put(w, "\"");
}

static void put_value(json_put *w, float value) { put_format(w, "%.7g", (double)value); }

/* {"token":…,"logprob":…,"bytes":[…] and no closing brace. */
static void put_candidate(json_put *w, const logprob *entry, const token_text *text)
{
    size_t count;
    const char *bytes = text->bytes(text->context, entry->id, &count);
    put(w, "{\"token\":");
    put_token(w, bytes, count);
    put(w, ",\"logprob\":");
    put_value(w, entry->value);
    put(w, ",\"bytes\":[");
    for (size_t i = 0; i < count; i++) put_format(w, "%s%u", i > 0 ? "," : "", (unsigned char)bytes[i]);
    put(w, "]");
}

static void put_chat(json_put *w, const logprob_list *list, const token_text *text)
{
    put(w, "{\"content\":[");
    for (uint32_t t = 0; t < list->tokens; t++) {
        const logprob *entry = list->entries + t * (1 + (size_t)list->top);
        put(w, t > 0 ? "," : "");
        put_candidate(w, entry, text);
        put(w, ",\"top_logprobs\":[");
        for (uint32_t i = 1; i <= list->top && entry[i].id >= 0; i++) {
            put(w, i > 1 ? "," : "");
            put_candidate(w, &entry[i], text);
            put(w, "}");
        }
        put(w, "]}");
    }
    put(w, "],\"refusal\":null}");
}

static void put_pair(json_put *w, const logprob *entry, const token_text *text)
{
    size_t count;
    const char *bytes = text->bytes(text->context, entry->id, &count);
    put_token(w, bytes, count);
    put(w, ":");
    put_value(w, entry->value);
}

/* The likeliest as name: value; the chosen one too when it is none of them. */
static void put_map(json_put *w, const logprob *entry, uint32_t top, const token_text *text)
{
    bool listed = false;
    put(w, "{");
    for (uint32_t i = 1; i <= top && entry[i].id >= 0; i++) {
        listed = listed || entry[i].id == entry[0].id;
        put(w, i > 1 ? "," : "");
        put_pair(w, &entry[i], text);
    }
    if (!listed) {
        put(w, top > 0 && entry[1].id >= 0 ? "," : "");
        put_pair(w, entry, text);
    }
    put(w, "}");
}

static void put_plain(json_put *w, const logprob_list *list, const token_text *text)
{
    static const char *const names[] = {"{\"tokens\":[", "],\"token_logprobs\":[", "],\"top_logprobs\":[", "],\"text_offset\":["};
    for (int part = 0; part < 4; part++) {
        uint64_t characters = 0;
        put(w, names[part]);
        for (uint32_t t = 0; t < list->tokens; t++) {
            const logprob *entry = list->entries + t * (1 + (size_t)list->top);
            size_t count;
            const char *bytes = text->bytes(text->context, entry->id, &count);
            put(w, t > 0 ? "," : "");
            if (part == 0) put_token(w, bytes, count);
            else if (part == 1) put_value(w, entry->value);
            else if (part == 2) put_map(w, entry, list->top, text);
            else put_format(w, "%llu", (unsigned long long)characters);
            for (size_t i = 0; i < count; i++) characters += ((unsigned char)bytes[i] & 0xC0) != 0x80;
        }
    }
    put(w, "]}");
}

void logprobs_put(json_put *w, const logprob_list *list, const token_text *text, bool chat)
{
    if (list == NULL) put(w, "null");
    else if (chat) put_chat(w, list, text);
    else put_plain(w, list, text);
}
