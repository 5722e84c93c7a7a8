#include "common/plan_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MOST ((size_t)256 << 20)

static ofl_status read_all(const char *path, FILE *file, char **text_out, size_t *bytes_out)
{
    char *text = NULL;
    size_t bytes = 0, room = 0, got = 1;
    ofl_status status = OFL_OK;
    while (status == OFL_OK && got > 0) {
        if (bytes + 1 >= room) {
            char *larger = realloc(text, room = room ? room * 2 : 65536);
            if (larger == NULL) status = app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of host memory", path);
            else text = larger;
        }
        got = status == OFL_OK ? fread(text + bytes, 1, room - bytes - 1, file) : 0;
        bytes += got;
        if (bytes > BYTES_MOST) status = app_fail(OFL_ERROR_FORMAT, "%s: is too big for a plan", path);
    }
    if (status == OFL_OK && ferror(file)) status = app_fail(OFL_ERROR_IO, "%s: reading failed: %s", path, strerror(errno));
    if (status != OFL_OK) {
        free(text);
        return status;
    }
    text[bytes] = '\0';
    *text_out = text;
    *bytes_out = bytes;
    return OFL_OK;
}

ofl_status plan_file_read(const char *path, char **text_out, ofl_plan **out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = fopen(path, "rbe");
    if (file == NULL) return app_fail(OFL_ERROR_NOT_FOUND, "%s: cannot be opened: %s", path, strerror(errno));
    ofl_status status = read_all(path, file, &text, &bytes);
    (void)fclose(file);
    if (status != OFL_OK) return status;
    status = ofl_plan_from_json(text, bytes, out);
    if (status == OFL_OK && text_out != NULL) *text_out = text;
    else free(text);
    return status == OFL_OK ? OFL_OK : app_fail(status, "%s: %s", path, ofl_error_message());
}
