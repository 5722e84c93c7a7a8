/* The known families, each written out by hand; what differs within a family is read from the model's own template. */
#include <stdio.h>

#include "batch/chat_parts.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void refuse(prompt *p, size_t index, const char *why)
{
    if (p->status == OFL_OK) p->status = app_fail(OFL_ERROR_ARGUMENT, "messages[%zu].role: %s", index, why);
}

/* A constant of the template as prompt text; false: it has none. */
static bool write_constant(prompt *p, const char *marker, const char *end)
{
    bool memory;
    buffer found = {0};
    bool there = template_constant(p->template_text, marker, end, &found, &memory);
    if (there) prompt_text(p, found.data, found.bytes);
    if (!memory) p->status = app_fail(OFL_ERROR_HOST_MEMORY, "chat template: out of memory");
    buffer_free(&found);
    return there;
}

static bool trims(const prompt *p)
{
    static const char *const ways[] = {"content'] | trim", "content']|trim", "content\"] | trim", "content\"]|trim", "content | trim", "content|trim"};
    return template_has_any(p->template_text, ways, COUNT_OF(ways));
}

/* --- ChatML --- */

static void chatml_open(prompt *p, const char *role)
{
    prompt_control(p, "<|im_start|>");
    prompt_words(p, role);
    prompt_words(p, "\n");
}

static void chatml_close(prompt *p)
{
    prompt_control(p, "<|im_end|>");
    prompt_words(p, "\n");
}

/* The system line that the template brings itself when the messages have none. */
static void chatml_default_system(prompt *p)
{
    static const struct {
        const char *marker, *end;
    } places[] = {{"<|im_start|>system\\n", "<|im_end|>"}, {"<|im_start|>system\n", "<|im_end|>"}, {"set system_message = '", ""}, {"set system_message = \"", ""}};
    bool memory = true, found = false;
    buffer line = {0};
    for (size_t i = 0; i < COUNT_OF(places) && !found && memory; i++) found = template_constant(p->template_text, places[i].marker, places[i].end, &line, &memory);
    if (found) {
        chatml_open(p, "system");
        prompt_text(p, line.data, line.bytes);
        chatml_close(p);
    }
    if (!memory) p->status = app_fail(OFL_ERROR_HOST_MEMORY, "chat template: out of memory");
    buffer_free(&line);
}

/* Templates of thinking models leave old thoughts out. */
static chat_message without_thoughts(const chat_message *message)
{
    static const char end[] = "</think>";
    chat_message rest = *message;
    for (const char *at; (at = memmem(rest.content, rest.bytes, end, sizeof end - 1)) != NULL;) {
        size_t skipped = (size_t)(at - rest.content) + sizeof end - 1;
        rest.content += skipped;
        rest.bytes -= skipped;
    }
    while (rest.content != message->content && rest.bytes != 0 && *rest.content == '\n') {
        rest.content++;
        rest.bytes--;
    }
    return rest;
}

/* Results of tools stand in a user turn, several in a row in one. */
static void chatml_tool(prompt *p, const chat_message *messages, size_t index, size_t count)
{
    if (index == 0 || chat_role_of(&messages[index - 1]) != ROLE_TOOL) {
        prompt_control(p, "<|im_start|>");
        prompt_words(p, "user");
    }
    prompt_words(p, "\n<tool_response>\n");
    prompt_message(p, &messages[index], false);
    prompt_words(p, "\n</tool_response>");
    if (index + 1 == count || chat_role_of(&messages[index + 1]) != ROLE_TOOL) chatml_close(p);
}

void chatml_write(prompt *p, const chat_message *messages, size_t count)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    bool trim = trims(p), thinks = template_has(p->template_text, "</think>"), tools = template_has(p->template_text, "<tool_response>");
    prompt_begin(p, NULL);
    if (chat_role_of(&messages[0]) != ROLE_SYSTEM) chatml_default_system(p);
    for (size_t i = 0; i < count; i++) {
        chat_role role = chat_role_of(&messages[i]);
        if (role == ROLE_TOOL && tools) {
            chatml_tool(p, messages, i, count);
            continue;
        }
        chat_message message = role == ROLE_ASSISTANT && thinks ? without_thoughts(&messages[i]) : messages[i];
        chatml_open(p, names[role]);
        prompt_message(p, &message, trim);
        chatml_close(p);
    }
    chatml_open(p, "assistant");
    if (template_has(p->template_text, "<|im_start|>assistant\\n<think>\\n")) prompt_words(p, "<think>\n");
}

/* --- Llama 3 --- */

static void llama3_open(prompt *p, const char *role)
{
    prompt_control(p, "<|start_header_id|>");
    prompt_words(p, role);
    prompt_control(p, "<|end_header_id|>");
    prompt_words(p, "\n\n");
}

/* 3.1 and later open with dates. "Today" is the one that the template names, so that an answer does not depend on the day it was made. */
static void llama3_dates(prompt *p)
{
    prompt_words(p, "Cutting Knowledge Date: December 2023\nToday Date: ");
    if (!write_constant(p, "set date_string = \"", "")) prompt_words(p, "26 Jul 2024");
    prompt_words(p, "\n\n");
}

void llama3_write(prompt *p, const chat_message *messages, size_t count)
{
    static const char *const names[] = {"system", "user", "assistant"};
    bool trim = !template_has(p->template_text, "<|start_header_id|>") || template_has(p->template_text, "trim");
    bool dates = template_has(p->template_text, "Cutting Knowledge Date");
    prompt_begin(p, "<|begin_of_text|>");
    if (dates && chat_role_of(&messages[0]) != ROLE_SYSTEM) {
        llama3_open(p, "system");
        llama3_dates(p);
        prompt_control(p, "<|eot_id|>");
    }
    for (size_t i = 0; i < count; i++) {
        chat_role role = chat_role_of(&messages[i]);
        if (role == ROLE_TOOL) {
            refuse(p, i, "the llama3 template has no tool role here");
            return;
        }
        llama3_open(p, names[role]);
        if (dates && i == 0 && role == ROLE_SYSTEM) llama3_dates(p);
        prompt_message(p, &messages[i], trim);
        prompt_control(p, "<|eot_id|>");
    }
    llama3_open(p, "assistant");
}

/* --- Mistral and Gemma: user and assistant in turn, a system message goes into a user's --- */

/* *system_out: the system message, or NULL; returns the index of the first turn. */
static size_t check_turns(prompt *p, const char *family, const chat_message *messages, size_t count, const chat_message **system_out)
{
    char why[120];
    size_t first = chat_role_of(&messages[0]) == ROLE_SYSTEM;
    *system_out = first != 0 ? &messages[0] : NULL;
    for (size_t i = first; i < count; i++) {
        chat_role wanted = (i - first) % 2 == 0 ? ROLE_USER : ROLE_ASSISTANT;
        if (chat_role_of(&messages[i]) == wanted) continue;
        (void)snprintf(why, sizeof why, "the %s template wants %s here: roles must alternate user, assistant, user", family, wanted == ROLE_USER ? "user" : "assistant");
        refuse(p, i, why);
        return first;
    }
    if ((count - first) % 2 == 0) {
        (void)snprintf(why, sizeof why, "the %s template wants a user message at the end", family);
        refuse(p, count - 1, why);
    }
    return first;
}

typedef struct mistral_style {
    bool before_open, after_open, before_close, before_answer, after_answer; /* spaces */
    bool trim_answer, system_last;
} mistral_style;

/* Versions differ in spaces only, and a space cannot be seen in the tokens' names: the template's own strings tell. */
static mistral_style mistral_style_of(const prompt *p)
{
    static const char *const before_open[] = {"' [INST]", "\" [INST]"}, *const answers[] = {"' ' + m", "\" \" + m"};
    static const char *const after[] = {"eos_token + ' '", "eos_token + \" \""};
    const char *text = p->template_text;
    if (!template_has(text, "[INST]")) { /* asked for by name: as the vocabulary suggests */
        bool control = tokenizer_find(p->t, "[INST]") >= 0, spaces = !p->t->byte_level;
        return (mistral_style){.after_open = spaces, .before_close = !control && spaces, .before_answer = spaces, .system_last = control};
    }
    return (mistral_style){template_has_any(text, before_open, 2), template_has(text, "[INST] "),    template_has(text, " [/INST]"), template_has_any(text, answers, 2),
                           template_has_any(text, after, 2),       trims(p),                         template_has(text, "if loop.last and ")};
}

static void mistral_user(prompt *p, const mistral_style *style, const chat_message *message, const chat_message *system)
{
    if (style->before_open) prompt_words(p, " ");
    prompt_control(p, "[INST]");
    if (style->after_open) prompt_words(p, " ");
    if (system != NULL) {
        prompt_message(p, system, false);
        prompt_words(p, "\n\n");
    }
    prompt_message(p, message, false);
    if (style->before_close) prompt_words(p, " ");
    prompt_control(p, "[/INST]");
}

void mistral_write(prompt *p, const chat_message *messages, size_t count)
{
    const chat_message *system;
    mistral_style style = mistral_style_of(p);
    size_t first = check_turns(p, "mistral", messages, count, &system);
    prompt_begin(p, "<s>");
    for (size_t i = first; i < count; i++) {
        if ((i - first) % 2 == 0) {
            mistral_user(p, &style, &messages[i], i == (style.system_last ? count - 1 : first) ? system : NULL);
            continue;
        }
        if (style.before_answer) prompt_words(p, " ");
        prompt_message(p, &messages[i], style.trim_answer);
        prompt_control(p, "</s>");
        if (style.after_answer) prompt_words(p, " ");
    }
}

void gemma_write(prompt *p, const chat_message *messages, size_t count)
{
    const chat_message *system;
    size_t first = check_turns(p, "gemma", messages, count, &system);
    prompt_begin(p, "<bos>");
    for (size_t i = first; i < count; i++) {
        prompt_control(p, "<start_of_turn>");
        prompt_words(p, (i - first) % 2 == 0 ? "user\n" : "model\n");
        if (i == first && system != NULL) {
            prompt_message(p, system, false);
            prompt_words(p, "\n\n");
        }
        prompt_message(p, &messages[i], true);
        prompt_control(p, "<end_of_turn>");
        prompt_words(p, "\n");
    }
    prompt_control(p, "<start_of_turn>");
    prompt_words(p, "model\n");
}
