#include "plan/svg.h"

#include <stdint.h>
#include <stdlib.h>

static const char style[] =
    "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:13px}"
    ".card{fill:#ffffff}.name{fill:#1f2328;font-size:18px;font-weight:600}.words{fill:#1f2328}.quiet{fill:#59636e}"
    ".resident{fill:#2f6fdb}.ring{fill:#8250df}.streamed{fill:#c8d1da}.kv{fill:#1a7f37}.runtime{fill:#bf8700}.headroom{fill:#8c959f}"
    "line{fill:none;stroke-width:1}.axis{stroke:#59636e}.grid{stroke:#d1d9e0}.curve{stroke:#2f6fdb;stroke-width:2}"
    ".knee{stroke:#cf222e;stroke-dasharray:4 3}.dot{fill:#2f6fdb}.ring-dot{fill:#ffffff;stroke:#2f6fdb;stroke-width:2}"
    "@media(prefers-color-scheme:dark){"
    ".card{fill:#0d1117}.name,.words{fill:#e6edf3}.quiet{fill:#9198a1}"
    ".resident{fill:#58a6ff}.ring{fill:#bc8cff}.streamed{fill:#3d444d}.kv{fill:#3fb950}.runtime{fill:#d29922}.headroom{fill:#656c76}"
    ".axis{stroke:#9198a1}.grid{stroke:#2a313c}.curve{stroke:#58a6ff}.knee{stroke:#ff7b72}.dot{fill:#58a6ff}"
    ".ring-dot{fill:#0d1117;stroke:#58a6ff}}";

ofl_status svg_begin(svg *s)
{
    *s = (svg){0};
    s->out = open_memstream(&s->shapes, &s->bytes);
    return s->out != NULL ? OFL_OK : app_fail(OFL_ERROR_HOST_MEMORY, "out of host memory");
}

void svg_box(svg *s, const char *class_name, double x, double y, double width, double height)
{
    (void)fprintf(s->out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", class_name, x, y, width,
                  height);
}

void svg_line(svg *s, const char *class_name, double x1, double y1, double x2, double y2)
{
    (void)fprintf(s->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class_name, x1, y1, x2, y2);
}

void svg_dot(svg *s, const char *class_name, double x, double y, double radius)
{
    (void)fprintf(s->out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n", class_name, x, y, radius);
}

/* Bytes of the character at `at`, 0 where it is no well-formed UTF-8 or none that XML may hold. */
static size_t character(const unsigned char *at)
{
    static const unsigned char leads[] = {0x80, 0xe0, 0xf0, 0xf8}; /* a first byte below it begins 1, 2, 3, 4 bytes */
    size_t length = 1;
    while (length < 4 && at[0] >= leads[length - 1]) length++;
    if (at[0] >= leads[3] || (at[0] >= 0x80 && at[0] < 0xc0)) return 0;
    uint32_t code = length == 1 ? at[0] : at[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    static const uint32_t least[] = {0, 0x20, 0x80, 0x800, 0x10000};
    if (code < least[length] || code > 0x10ffff) return 0;
    return (code >= 0xd800 && code < 0xe000) || code == 0xfffe || code == 0xffff ? 0 : length;
}

static void put_escaped(FILE *out, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        size_t length = character(at);
        if (length == 0) (void)fputc('?', out);
        else if (*at == '&') (void)fputs("&amp;", out);
        else if (*at == '<') (void)fputs("&lt;", out);
        else if (*at == '>') (void)fputs("&gt;", out);
        else (void)fwrite(at, 1, length, out);
        at += length > 0 ? length : 1;
    }
}

void svg_text(svg *s, const char *class_name, const char *anchor, double x, double y, const char *text)
{
    (void)fprintf(s->out, "<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">", class_name, anchor, x, y);
    put_escaped(s->out, text);
    (void)fputs("</text>\n", s->out);
}

char *svg_end(svg *s, double height, const char *title)
{
    char *text = NULL;
    size_t bytes = 0;
    int failed = ferror(s->out);
    failed |= fclose(s->out);
    FILE *out = failed ? NULL : open_memstream(&text, &bytes);
    if (out != NULL) {
        (void)fprintf(out,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\" "
                      "xml:space=\"preserve\" role=\"img\">\n<title>",
                      SVG_WIDTH, height, SVG_WIDTH, height);
        put_escaped(out, title);
        (void)fprintf(out, "</title>\n<style>%s</style>\n<rect class=\"card\" width=\"100%%\" height=\"100%%\"/>\n%s</svg>\n", style,
                      s->shapes);
        failed = ferror(out);
        failed |= fclose(out);
    }
    free(s->shapes);
    *s = (svg){0};
    if (!failed) return text;
    free(text);
    return NULL;
}
