#include "batch/chat_template.h"

#include <stdio.h>

#include "batch/chat_parts.h"
#include "common/utf8.h"

#define NAMES "chatml, llama3, mistral, gemma or none"

static ofl_status by_name(const char *name, chat_template *out)
{
    static const char *const names[] = {"chatml", "llama3", "mistral", "gemma", "none"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (chat_template)i;
        return OFL_OK;
    }
    return app_fail(OFL_ERROR_ARGUMENT, "--chat-template %s: not known; use " NAMES, name);
}

/* The first few marks of an unknown template, for the sentence. */
static void collect_marks(const char *text, char *marks, size_t room)
{
    size_t used = 0;
    marks[0] = 0;
    for (const char *at = text; *at != 0 && used + 44 < room; at++) {
        if (*at != '<' && *at != '[') continue;
        size_t length = strcspn(at + 1, *at == '<' ? ">" : "]") + 2;
        if (length > 40 || strcspn(at, " '\"\n") < length || memmem(marks, used, at, length) != NULL) continue;
        used += (size_t)snprintf(marks + used, room - used, "%s%.*s", used == 0 ? "" : " ", (int)length, at);
        at += length - 1;
    }
    if (used == 0) (void)snprintf(marks, room, "\"%.60s\"", text);
}

static ofl_status unknown_template(const char *text)
{
    char marks[200];
    collect_marks(text, marks, sizeof marks);
    return app_fail(OFL_ERROR_UNSUPPORTED, "the model's chat template is not known (seen: %s); say --chat-template " NAMES, marks);
}

ofl_status chat_template_choose(const tokenizer *t, const char *name, chat_template *out)
{
    static const char *const other_instructions[] = {"<<SYS>>", "[SYSTEM_PROMPT]"};
    const char *text = tokenizer_template(t);
    if (name != NULL) return by_name(name, out);
    if (text == NULL) return app_fail(OFL_ERROR_UNSUPPORTED, "the model has no chat template; say --chat-template " NAMES);
    if (template_has(text, "<|im_start|>") && !template_has(text, "<|im_sep|>")) *out = CHAT_CHATML;
    else if (template_has(text, "[INST]") && !template_has_any(text, other_instructions, 2)) *out = CHAT_MISTRAL;
    else if (template_has(text, "<start_of_turn>")) *out = CHAT_GEMMA;
    else if (template_has(text, "<|start_header_id|>") && template_has(text, "<|end_header_id|>")) *out = CHAT_LLAMA3;
    else return unknown_template(text);
    return OFL_OK;
}

static void no_memory(prompt *p) { p->status = app_fail(OFL_ERROR_HOST_MEMORY, "chat template: out of memory"); }

void prompt_text(prompt *p, const char *text, size_t bytes)
{
    if (p->status == OFL_OK && !buffer_add(&p->text, text, bytes)) no_memory(p);
}

void prompt_words(prompt *p, const char *text) { prompt_text(p, text, strlen(text)); }

static void flush(prompt *p)
{
    if (p->status != OFL_OK || p->text.bytes == 0) return;
    p->status = tokenizer_encode_part(p->t, p->text.data, p->text.bytes, false, p->out->count == p->start, p->out);
    p->text.bytes = 0;
}

void prompt_control(prompt *p, const char *text)
{
    int32_t id = tokenizer_find(p->t, text);
    if (id < 0) {
        prompt_words(p, text);
        return;
    }
    flush(p);
    if (p->status == OFL_OK) p->status = tokens_push(p->out, id);
}

void prompt_begin(prompt *p, const char *by_family)
{
    int32_t id = tokenizer_begin(p->t);
    if (id < 0 && by_family != NULL) id = tokenizer_find(p->t, by_family);
    if (id >= 0 && p->status == OFL_OK) p->status = tokens_push(p->out, id);
}

void prompt_message(prompt *p, const chat_message *message, bool trim)
{
    const char *text = message->content;
    size_t bytes = message->bytes;
    if (trim) utf8_trim(&text, &bytes);
    prompt_text(p, text, bytes);
}

chat_role chat_role_of(const chat_message *message)
{
    static const struct {
        const char *name;
        chat_role role;
    } roles[] = {{"system", ROLE_SYSTEM}, {"developer", ROLE_SYSTEM}, {"user", ROLE_USER}, {"assistant", ROLE_ASSISTANT}, {"tool", ROLE_TOOL}};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(message->role, roles[i].name) == 0) return roles[i].role;
    }
    return ROLE_UNKNOWN;
}

static ofl_status check(const chat_message *messages, size_t count)
{
    if (count == 0) return app_fail(OFL_ERROR_ARGUMENT, "messages: empty");
    for (size_t i = 0; i < count; i++) {
        if (chat_role_of(&messages[i]) == ROLE_UNKNOWN)
            return app_fail(OFL_ERROR_ARGUMENT, "messages[%zu].role: \"%.40s\" is not system, developer, user, assistant or tool", i, messages[i].role);
        if (!utf8_valid(messages[i].content, messages[i].bytes)) return app_fail(OFL_ERROR_ARGUMENT, "messages[%zu].content: not valid UTF-8", i);
    }
    return OFL_OK;
}

/* Where the template would refuse a system message, or turns that do not alternate, its own words are what is told. */
static ofl_status check_raised(const char *text, const chat_message *messages, size_t count)
{
    char why[120];
    size_t first = chat_role_of(&messages[0]) == ROLE_SYSTEM;
    bool knows_system = template_has(text, "system");
    bool raised = first != 0 && (template_raises(text, "ystem", "not supported", why, sizeof why) ||
                                 (!knows_system && template_raises(text, "oles", "supported", why, sizeof why)) ||
                                 (!knows_system && template_raises(text, "oles", "alternate", why, sizeof why)));
    if (raised) return app_fail(OFL_ERROR_ARGUMENT, "messages[0].role: the model's template says: %s", why);
    for (size_t i = first; i < count; i++) {
        chat_role role = chat_role_of(&messages[i]);
        if (role != ROLE_USER && role != ROLE_ASSISTANT) return OFL_OK; /* tools have orders of their own */
        if (role == ((i - first) % 2 == 0 ? ROLE_USER : ROLE_ASSISTANT)) continue;
        if (!template_raises(text, "oles", "alternate", why, sizeof why)) return OFL_OK;
        return app_fail(OFL_ERROR_ARGUMENT, "messages[%zu].role: the model's template says: %s", i, why);
    }
    return OFL_OK;
}

/* No template: the texts, line by line, the first of them at the start of a prompt although BOS stands before it. */
static void plain_write(prompt *p, const chat_message *messages, size_t count)
{
    prompt_begin(p, NULL);
    p->start = p->out->count;
    for (size_t i = 0; i < count; i++) {
        if (i != 0) prompt_words(p, "\n");
        prompt_message(p, &messages[i], false);
    }
}

ofl_status chat_template_encode(chat_template kind, tokenizer *t, const chat_message *messages, size_t count, token_list *out)
{
    static void (*const writers[])(prompt *, const chat_message *, size_t) = {chatml_write, llama3_write, mistral_write, gemma_write, plain_write};
    size_t before = out->count;
    prompt p = {.t = t, .out = out, .template_text = tokenizer_template(t), .start = out->count, .status = check(messages, count)};
    if (p.status == OFL_OK && kind != CHAT_NONE) p.status = check_raised(p.template_text, messages, count);
    if (p.status == OFL_OK) writers[kind](&p, messages, count);
    flush(&p);
    if (p.status != OFL_OK) out->count = before;
    buffer_free(&p.text);
    return p.status;
}
