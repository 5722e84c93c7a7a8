#include "batch/tokenizer.h"

#include <utf8proc.h>

#include "batch/tokenizer_parts.h"
#include "common/utf8.h"

static ofl_status no_memory(void) { return app_fail(OFL_ERROR_HOST_MEMORY, "tokenizer: out of memory"); }

static ofl_status create(tokenizer **out)
{
    tokenizer *t = calloc(1, sizeof *t);
    if (t == NULL) return no_memory();
    t->begin = -1;
    ofl_status status = bpe_init(&t->merges, &t->words);
    if (status == OFL_OK) status = pretokenizer_create(&t->splitter);
    if (status == OFL_OK) *out = t;
    else tokenizer_close(t);
    return status;
}

ofl_status tokenizer_open(const ofl_model *model, tokenizer **out)
{
    tokenizer *t = NULL;
    ofl_model_format format = ofl_model_format_get(model);
    if (format == OFL_FORMAT_HF) return tokenizer_open_folder(ofl_model_path(model), out);
    if (format != OFL_FORMAT_GGUF)
        return app_fail(OFL_ERROR_UNSUPPORTED, "%s: no tokenizer; only GGUF files and Hugging Face folders carry one", ofl_model_name(model));
    ofl_status status = create(&t);
    if (status == OFL_OK) status = tokenizer_load_gguf(t, model);
    if (status == OFL_OK) *out = t;
    else tokenizer_close(t);
    return status;
}

ofl_status tokenizer_open_folder(const char *folder, tokenizer **out)
{
    tokenizer *t = NULL;
    ofl_status status = create(&t);
    if (status == OFL_OK) status = tokenizer_load_folder(t, folder);
    if (status == OFL_OK) *out = t;
    else tokenizer_close(t);
    return status;
}

void tokenizer_close(tokenizer *t)
{
    if (t == NULL) return;
    bpe_free(&t->merges);
    vocabulary_free(&t->words);
    pretokenizer_free(t->splitter);
    buffer_free(&t->composed);
    buffer_free(&t->marked);
    free(t->chat_template);
    free(t);
}

ofl_status tokens_push(token_list *list, int32_t id)
{
    void *ids = list->ids;
    if (!grow(&ids, &list->capacity, list->count + 1, sizeof *list->ids)) return no_memory();
    list->ids = ids;
    list->ids[list->count++] = id;
    return OFL_OK;
}

void tokens_free(token_list *list)
{
    free(list->ids);
    *list = (token_list){0};
}

static ofl_status compose(tokenizer *t, const char **text, size_t *bytes)
{
    utf8proc_uint8_t *composed = NULL;
    bool plain = true;
    for (size_t i = 0; i < *bytes && plain; i++) plain = (unsigned char)(*text)[i] < 0x80;
    if (plain) return OFL_OK;
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)*text, (utf8proc_ssize_t)*bytes, &composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (length == UTF8PROC_ERROR_NOMEM) return no_memory();
    if (length < 0) return app_fail(OFL_ERROR_ARGUMENT, "tokenizer: text cannot be normalised: %s", utf8proc_errmsg(length));
    t->composed.bytes = 0;
    bool added = buffer_add(&t->composed, (const char *)composed, (size_t)length);
    free(composed);
    *text = t->composed.data;
    *bytes = (size_t)length;
    return added ? OFL_OK : no_memory();
}

/* The space before the text, and marks for spaces. */
static ofl_status mark(tokenizer *t, const char **text, size_t *bytes, bool first)
{
    const char *space = t->mark_spaces ? SPACE_MARK : " ";
    size_t width = strlen(space);
    bool starts = (*text)[0] == ' ' || (t->mark_spaces && *bytes >= width && memcmp(*text, space, width) == 0);
    bool prefix = (t->prefix == PREFIX_ALWAYS || (t->prefix == PREFIX_FIRST && first)) && !(t->prefix_once && starts);
    if (!prefix && !t->mark_spaces) return OFL_OK;
    t->marked.bytes = 0;
    bool added = !prefix || buffer_add(&t->marked, space, width);
    for (size_t at = 0, end; at < *bytes && added; at = end) {
        const char *found = t->mark_spaces ? memchr(*text + at, ' ', *bytes - at) : NULL;
        end = found == NULL ? *bytes : (size_t)(found - *text);
        added = buffer_add(&t->marked, *text + at, end - at);
        if (added && found != NULL) {
            added = buffer_add(&t->marked, space, width);
            end++;
        }
    }
    *text = t->marked.data;
    *bytes = t->marked.bytes;
    return added ? OFL_OK : no_memory();
}

typedef struct encoding {
    tokenizer *t;
    token_list *out;
} encoding;

static ofl_status encode_word(void *context, const char *word, size_t bytes)
{
    encoding *e = context;
    return bpe_encode(&e->t->merges, word, bytes, e->out);
}

/* Text that holds no added token. */
static ofl_status encode_plain(tokenizer *t, const char *text, size_t bytes, bool first, token_list *out)
{
    encoding e = {t, out};
    ofl_status status = OFL_OK;
    if (bytes == 0) return OFL_OK;
    if (t->nfc) status = compose(t, &text, &bytes);
    if (status == OFL_OK) status = mark(t, &text, &bytes, first);
    return status == OFL_OK ? pretokenizer_split(t->splitter, text, bytes, encode_word, &e) : status;
}

ofl_status tokenizer_encode_part(tokenizer *t, const char *text, size_t bytes, bool markup, bool first, token_list *out)
{
    ofl_status status = OFL_OK;
    size_t plain = 0, at = 0, length = 0, before = out->count;
    if (!utf8_valid(text, bytes)) return app_fail(OFL_ERROR_ARGUMENT, "text: not valid UTF-8");
    while (at < bytes && status == OFL_OK) {
        int32_t id = vocabulary_match(&t->words, text + at, bytes - at, markup, &length);
        if (id < 0) {
            at++;
            continue;
        }
        status = encode_plain(t, text + plain, at - plain, first && plain == 0, out);
        if (status == OFL_OK) status = tokens_push(out, id);
        at += length;
        plain = at;
    }
    if (status == OFL_OK) status = encode_plain(t, text + plain, bytes - plain, first && plain == 0, out);
    if (status != OFL_OK) out->count = before;
    return status;
}

ofl_status tokenizer_encode(tokenizer *t, const char *text, size_t bytes, bool markup, token_list *out)
{
    return tokenizer_encode_part(t, text, bytes, markup, true, out);
}

const char *tokenizer_bytes(const tokenizer *t, int32_t id, size_t *bytes_out)
{
    *bytes_out = 0;
    if (id < 0 || (size_t)id >= t->words.count) return "";
    const token *known = &t->words.tokens[id];
    *bytes_out = known->shown_bytes;
    return known->shown_bytes == 0 ? "" : t->words.text.data + known->shown_offset;
}

int32_t tokenizer_find(const tokenizer *t, const char *text) { return vocabulary_find_added(&t->words, text, strlen(text)); }

bool tokenizer_is_end(const tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->end_count; i++) {
        if (t->ends[i] == id) return true;
    }
    return false;
}

int32_t tokenizer_begin(const tokenizer *t) { return t->begin; }
uint32_t tokenizer_size(const tokenizer *t) { return (uint32_t)t->words.count; }
const char *tokenizer_template(const tokenizer *t) { return t->chat_template; }
