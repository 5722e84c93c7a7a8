/* What tokenizer.json does to text before merging: normalizer and pre_tokenizer. Anything unknown is refused by its name. */
#include "batch/tokenizer_json.h"

#define MAX_DEPTH 4

typedef ofl_status (*rule_reader)(tokenizer *t, const cJSON *rule, const char *type, const char *name);

static ofl_status unknown_rule(const char *name, const char *where, const char *what)
{
    return app_fail(OFL_ERROR_UNSUPPORTED, "%s: %s \"%s\" is not supported", name, where, what);
}

/* One rule, or the rules of a Sequence (`list` names its member) one after another. */
static ofl_status read_rules(tokenizer *t, const cJSON *rule, const char *list, const char *name, rule_reader read, int depth)
{
    const char *type = json_text(rule, "type");
    ofl_status status = OFL_OK;
    if (rule == NULL) return OFL_OK;
    if (type == NULL || depth == MAX_DEPTH) return app_fail(OFL_ERROR_FORMAT, "%s: a rule has no type or is nested too deep", name);
    if (strcmp(type, "Sequence") != 0) return read(t, rule, type, name);
    const cJSON *items = json_member(rule, list);
    if (!cJSON_IsArray(items)) return app_fail(OFL_ERROR_FORMAT, "%s: %s: not a list", name, list);
    for (const cJSON *item = items->child; item != NULL && status == OFL_OK; item = item->next) status = read_rules(t, item, list, name, read, depth + 1);
    return status;
}

static bool is_text(const char *text, const char *wanted) { return text != NULL && strcmp(text, wanted) == 0; }

static ofl_status read_normalizer(tokenizer *t, const cJSON *rule, const char *type, const char *name)
{
    if (strcmp(type, "NFC") == 0) {
        t->nfc = true;
    } else if (strcmp(type, "Prepend") == 0 && is_text(json_text(rule, "prepend"), SPACE_MARK)) {
        t->prefix = PREFIX_ALWAYS;
    } else if (strcmp(type, "Replace") == 0 && is_text(json_text(json_member(rule, "pattern"), "String"), " ") && is_text(json_text(rule, "content"), SPACE_MARK)) {
        t->mark_spaces = true;
    } else {
        return unknown_rule(name, "normalizer", type);
    }
    return OFL_OK;
}

/* A plain string as a pattern. */
static ofl_status add_literal(tokenizer *t, const char *text, split_behaviour behaviour, bool invert)
{
    buffer pattern = {0};
    bool added = true;
    for (; *text != 0 && added; text++) {
        bool letter = (unsigned char)*text >= 0x80 || (*text >= '0' && *text <= '9') || ((*text | 0x20) >= 'a' && (*text | 0x20) <= 'z');
        added = (letter || buffer_add(&pattern, "\\", 1)) && buffer_add(&pattern, text, 1);
    }
    ofl_status status = added ? pretokenizer_add(t->splitter, pattern.data, pattern.bytes, behaviour, invert)
                              : app_fail(OFL_ERROR_HOST_MEMORY, "tokenizer: out of memory");
    buffer_free(&pattern);
    return status;
}

static ofl_status read_split(tokenizer *t, const cJSON *rule, const char *name)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *behaviour = json_text(rule, "behavior");
    const cJSON *pattern = json_member(rule, "pattern");
    const char *regex = json_text(pattern, "Regex"), *literal = json_text(pattern, "String");
    bool invert = json_flag(rule, "invert", false);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!is_text(behaviour, names[i])) continue;
        if (regex != NULL && *regex != 0) return pretokenizer_add(t->splitter, regex, strlen(regex), (split_behaviour)i, invert);
        if (literal != NULL && *literal != 0) return add_literal(t, literal, (split_behaviour)i, invert);
        return app_fail(OFL_ERROR_FORMAT, "%s: pre_tokenizer Split has no pattern", name);
    }
    return unknown_rule(name, "pre_tokenizer Split behavior", behaviour == NULL ? "" : behaviour);
}

static ofl_status read_byte_level(tokenizer *t, const cJSON *rule, const char *name)
{
    bool prefix = json_flag(rule, "add_prefix_space", true);
    t->byte_level = true;
    if (prefix && pretokenizer_steps(t->splitter) != 0) return unknown_rule(name, "pre_tokenizer", "ByteLevel with add_prefix_space after other steps");
    if (prefix) {
        t->prefix = PREFIX_ALWAYS;
        t->prefix_once = true;
    }
    return json_flag(rule, "use_regex", true) ? pretokenizer_add_byte_level(t->splitter) : OFL_OK;
}

static ofl_status read_metaspace(tokenizer *t, const cJSON *rule, const char *name)
{
    const char *scheme = json_text(rule, "prepend_scheme");
    if (!is_text(json_text(rule, "replacement"), SPACE_MARK)) return unknown_rule(name, "pre_tokenizer", "Metaspace with another replacement than U+2581");
    if (scheme == NULL) scheme = json_flag(rule, "add_prefix_space", true) ? "always" : "never";
    if (strcmp(scheme, "always") == 0) t->prefix = PREFIX_ALWAYS;
    else if (strcmp(scheme, "first") == 0) t->prefix = PREFIX_FIRST;
    else if (strcmp(scheme, "never") != 0) return unknown_rule(name, "pre_tokenizer Metaspace prepend_scheme", scheme);
    t->mark_spaces = true;
    t->prefix_once = true;
    return json_flag(rule, "split", true) ? add_literal(t, SPACE_MARK, SPLIT_MERGED_NEXT, false) : OFL_OK;
}

static ofl_status add_digits(tokenizer *t, bool each)
{
    const char *pattern = each ? "\\p{N}" : "\\p{N}+";
    return pretokenizer_add(t->splitter, pattern, strlen(pattern), SPLIT_ISOLATED, false);
}

static ofl_status read_pre_tokenizer(tokenizer *t, const cJSON *rule, const char *type, const char *name)
{
    if (strcmp(type, "Split") == 0) return read_split(t, rule, name);
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(t, rule, name);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(t, rule, name);
    if (strcmp(type, "Digits") == 0) return add_digits(t, json_flag(rule, "individual_digits", false));
    return unknown_rule(name, "pre_tokenizer", type);
}

ofl_status tokenizer_json_rules(tokenizer *t, const cJSON *root, const char *name)
{
    ofl_status status = read_rules(t, json_member(root, "normalizer"), "normalizers", name, read_normalizer, 0);
    return status == OFL_OK ? read_rules(t, json_member(root, "pre_tokenizer"), "pretokenizers", name, read_pre_tokenizer, 0) : status;
}
