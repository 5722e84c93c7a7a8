#include "batch/json_put.h"

#include <stdarg.h>
#include <stdio.h>

void put(json_put *w, const char *text) { w->ok = w->ok && buffer_add(w->out, text, strlen(text)); }

void put_format(json_put *w, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put(w, text);
}

static void put_escaped(json_put *w, char c)
{
    switch (c) {
    case '"': put(w, "\\\""); break;
    case '\\': put(w, "\\\\"); break;
    case '\n': put(w, "\\n"); break;
    case '\r': put(w, "\\r"); break;
    case '\t': put(w, "\\t"); break;
    default: put_format(w, "\\u%04x", (unsigned char)c);
    }
}

void put_string(json_put *w, const char *text, size_t bytes)
{
    put(w, "\"");
    for (size_t at = 0; at < bytes;) {
        size_t plain = at;
        while (plain < bytes && (unsigned char)text[plain] >= 0x20 && text[plain] != '"' && text[plain] != '\\' && text[plain] != 0x7F) plain++;
        w->ok = w->ok && buffer_add(w->out, text + at, plain - at);
        if (plain < bytes) put_escaped(w, text[plain++]);
        at = plain;
    }
    put(w, "\"");
}

void put_text(json_put *w, const char *text)
{
    if (text != NULL) put_string(w, text, strlen(text));
    else put(w, "null");
}
