#define PCRE2_CODE_UNIT_WIDTH 8
#include "batch/pretokenizer.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

#define MAX_STEPS 16
#define MATCH_STACK (8u << 20)

typedef struct split_step {
    pcre2_code *code;
    pcre2_match_data *match; /* its own: steps run inside one another */
    split_behaviour behaviour;
    bool invert;
} split_step;

struct pretokenizer {
    split_step steps[MAX_STEPS];
    size_t count;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3(digits) ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN35 ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES
#define CASED(ending, digits)                                                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" ending        \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" ending       \
    "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define DEEPSEEK3                                                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" \
    SPACES

typedef struct named {
    const char *names;      /* "|a|b|" */
    const char *patterns[3];
    pretokenizer_traits traits;
} named;

static const named known[] = {
    {"|gpt-2|mpt|olmo|", {GPT2}, {0}},
    {"|smollm|starcoder|command-r|refact|codeshell|", {"\\p{N}", GPT2}, {0}},
    {"|llama3|llama-v3|llama-bpe|falcon3|pixtral|lfm2|", {LLAMA3("\\p{N}{1,3}")}, {.whole_words = true, .begin = true}},
    {"|qwen2|stablelm2|hunyuan|deepseek-r1-qwen|", {LLAMA3("\\p{N}")}, {.nfc = true}},
    {"|qwen35|", {QWEN35}, {.nfc = true}},
    {"|gpt-4o|minimax-m2|", {CASED(ENDINGS "?", "\\p{N}{1,3}")}, {0}},
    {"|tekken|", {CASED("", "\\p{N}")}, {.whole_words = true, .begin = true}},
    {"|deepseek-v3|hunyuan-dense|joyai|joyai-llm|", {"\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK3}, {0}},
    {"|gemma4|sarvam-moe|", {"[^\\n]+|[\\n]+"}, {.characters = true}},
};

ofl_status pretokenizer_create(pretokenizer **out)
{
    pretokenizer *p = calloc(1, sizeof *p);
    if (p == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "pre-tokenizer: out of memory");
    p->context = pcre2_match_context_create(NULL);
    p->stack = pcre2_jit_stack_create(32u << 10, MATCH_STACK, NULL);
    if (p->context == NULL || p->stack == NULL) {
        pretokenizer_free(p);
        return app_fail(OFL_ERROR_HOST_MEMORY, "pre-tokenizer: out of memory");
    }
    pcre2_jit_stack_assign(p->context, NULL, p->stack);
    *out = p;
    return OFL_OK;
}

void pretokenizer_free(pretokenizer *p)
{
    if (p == NULL) return;
    for (size_t i = 0; i < p->count; i++) {
        pcre2_code_free(p->steps[i].code);
        pcre2_match_data_free(p->steps[i].match);
    }
    pcre2_match_context_free(p->context);
    pcre2_jit_stack_free(p->stack);
    free(p);
}

static ofl_status compile(const char *pattern, size_t bytes, pcre2_code **out)
{
    int code;
    PCRE2_SIZE offset;
    char why[120];
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, bytes, PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
    if (compiled == NULL) {
        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return app_fail(OFL_ERROR_UNSUPPORTED, "pre-tokenizer: pattern \"%.*s\": %s at byte %zu", bytes > 200 ? 200 : (int)bytes, pattern, why, (size_t)offset);
    }
    (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* without it matching is slower, not different */
    *out = compiled;
    return OFL_OK;
}

ofl_status pretokenizer_add(pretokenizer *p, const char *pattern, size_t bytes, split_behaviour behaviour, bool invert)
{
    if (p->count == MAX_STEPS) return app_fail(OFL_ERROR_UNSUPPORTED, "pre-tokenizer: more than %d steps", MAX_STEPS);
    if (memmem(pattern, bytes, "&&", 2) != NULL) /* set intersection elsewhere, two plain characters to PCRE2 */
        return app_fail(OFL_ERROR_UNSUPPORTED, "pre-tokenizer: pattern \"%.*s\": \"&&\" is not supported", bytes > 200 ? 200 : (int)bytes, pattern);
    split_step step = {NULL, NULL, behaviour, invert};
    ofl_status status = compile(pattern, bytes, &step.code);
    if (status != OFL_OK) return status;
    step.match = pcre2_match_data_create(1, NULL);
    if (step.match == NULL) {
        pcre2_code_free(step.code);
        return app_fail(OFL_ERROR_HOST_MEMORY, "pre-tokenizer: out of memory");
    }
    p->steps[p->count++] = step;
    return OFL_OK;
}

size_t pretokenizer_steps(const pretokenizer *p) { return p->count; }
ofl_status pretokenizer_add_byte_level(pretokenizer *p) { return pretokenizer_add(p, GPT2, sizeof GPT2 - 1, SPLIT_ISOLATED, false); }

static bool is_listed(const char *names, const char *name)
{
    size_t bytes = strlen(name);
    if (bytes == 0 || strchr(name, '|') != NULL) return false;
    for (const char *at = names; (at = strstr(at, name)) != NULL; at++) {
        if (at[-1] == '|' && at[bytes] == '|') return true;
    }
    return false;
}

ofl_status pretokenizer_add_named(pretokenizer *p, const char *name, pretokenizer_traits *out)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        ofl_status status = OFL_OK;
        if (!is_listed(known[i].names, name)) continue;
        for (size_t j = 0; j < 3 && known[i].patterns[j] != NULL && status == OFL_OK; j++)
            status = pretokenizer_add(p, known[i].patterns[j], strlen(known[i].patterns[j]), SPLIT_ISOLATED, false);
        if (status == OFL_OK) *out = known[i].traits;
        return status;
    }
    return app_fail(OFL_ERROR_UNSUPPORTED, "tokenizer.ggml.pre \"%s\" is not known; its words would be cut wrongly", name);
}

typedef struct splitting {
    pretokenizer *p;
    pretokenizer_word word;
    void *context;
} splitting;

typedef struct pending_piece {
    const char *text;
    size_t bytes;
    bool matched;
} pending_piece;

static ofl_status split_from(const splitting *s, size_t step, const char *text, size_t bytes);

static bool joins(split_behaviour behaviour, bool before, bool now)
{
    switch (behaviour) {
    case SPLIT_CONTIGUOUS: return before == now;
    case SPLIT_MERGED_PREVIOUS: return now && !before;
    case SPLIT_MERGED_NEXT: return before && !now;
    default: return false;
    }
}

/* Takes the next stretch of text in; hands the pending piece on when the two do not belong together. bytes 0: the end. */
static ofl_status take(const splitting *s, size_t step, pending_piece *pending, const char *text, size_t bytes, bool matched)
{
    split_behaviour behaviour = s->p->steps[step].behaviour;
    if (bytes != 0 && pending->bytes != 0 && joins(behaviour, pending->matched, matched)) {
        pending->bytes += bytes;
        pending->matched = matched;
        return OFL_OK;
    }
    ofl_status status = pending->bytes == 0 ? OFL_OK : split_from(s, step + 1, pending->text, pending->bytes);
    *pending = (pending_piece){text, behaviour == SPLIT_REMOVED && matched ? 0 : bytes, matched};
    return status;
}

/* The next match that is not empty, at or after `from`. */
static ofl_status next_match(const splitting *s, size_t step, const char *text, size_t bytes, size_t from, size_t *start_out, size_t *end_out)
{
    const split_step *now = &s->p->steps[step];
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(now->match);
    while (from < bytes) {
        int found = pcre2_match(now->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, now->match, s->p->context);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0) return app_fail(OFL_ERROR_ARGUMENT, "pre-tokenizer: matching failed (PCRE2 error %d); the text or the pattern is too complex", found);
        if (ends[0] < from || ends[1] < ends[0]) return app_fail(OFL_ERROR_UNSUPPORTED, "pre-tokenizer: a pattern moves its match's start");
        if (ends[1] > ends[0]) {
            *start_out = ends[0];
            *end_out = ends[1];
            return OFL_OK;
        }
        if (ends[0] >= bytes) break;
        from = ends[0] + utf8_read(text + ends[0], bytes - ends[0]).bytes;
    }
    *start_out = *end_out = bytes;
    return OFL_OK;
}

static ofl_status split_from(const splitting *s, size_t step, const char *text, size_t bytes)
{
    if (step == s->p->count) return s->word(s->context, text, bytes);
    bool invert = s->p->steps[step].invert;
    pending_piece pending = {0};
    ofl_status status = OFL_OK;
    for (size_t at = 0, start = 0, end = 0; at < bytes && status == OFL_OK; at = end) {
        status = next_match(s, step, text, bytes, at, &start, &end);
        if (status == OFL_OK && start > at) status = take(s, step, &pending, text + at, start - at, invert);
        if (status == OFL_OK && end > start) status = take(s, step, &pending, text + start, end - start, !invert);
    }
    return status == OFL_OK ? take(s, step, &pending, NULL, 0, false) : status;
}

ofl_status pretokenizer_split(pretokenizer *p, const char *text, size_t bytes, pretokenizer_word word, void *context)
{
    splitting s = {p, word, context};
    return split_from(&s, 0, text, bytes);
}
