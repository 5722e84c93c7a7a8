/* Which reader a path needs is told from what is there, not from its name. */
#include "model/description.h"
#include "model/gguf.h"
#include "model/hf.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static bool begins_object(const unsigned char *bytes, size_t count)
{
    size_t at = 0;
    while (at < count && (bytes[at] == ' ' || bytes[at] == '\t' || bytes[at] == '\r' || bytes[at] == '\n')) at++;
    return at < count && bytes[at] == '{';
}

/* A safetensors file begins with a length and then its JSON. */
static bool is_safetensors(const unsigned char *bytes, size_t count) { return count >= 9 && bytes[8] == '{'; }

static ofl_status open_file(const char *path, ofl_model **out)
{
    ofl_reader reader;
    unsigned char start[64] = {0};
    ofl_status status = ofl_reader_open(&reader, path);
    if (status != OFL_OK) return status;
    size_t count = (size_t)ofl_min_u64(reader.end, sizeof start);
    status = ofl_reader_take(&reader, start, count, "the header");
    ofl_reader_close(&reader);
    if (status != OFL_OK) return status;
    if (count < 4) return ofl_fail(OFL_ERROR_FORMAT, "%s: %zu bytes are too short for a model", path, count);
    if (memcmp(start, "GGUF", 4) == 0) return ofl_gguf_open(path, out);
    if (begins_object(start, count)) return ofl_description_open(path, out);
    if (is_safetensors(start, count))
        return ofl_fail(OFL_ERROR_FORMAT, "%s: a safetensors file alone is no model; give the folder that holds it and config.json", path);
    return ofl_fail(OFL_ERROR_FORMAT, "%s: not a model: neither GGUF nor a description in JSON", path);
}

ofl_status ofl_model_open(const char *path, ofl_model **out)
{
    struct stat about;
    ofl_model *model = NULL;
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "open a model: no place for the result given");
    *out = NULL;
    if (path == NULL || path[0] == '\0') return ofl_fail(OFL_ERROR_ARGUMENT, "open a model: no path given");
    if (stat(path, &about) != 0) {
        ofl_status status = errno == ENOENT || errno == ENOTDIR ? OFL_ERROR_NOT_FOUND : OFL_ERROR_IO;
        return ofl_fail_code(status, errno, "%s: %s; give the path of a GGUF file, a Hugging Face folder or a description", path,
                             strerror(errno));
    }
    ofl_status status = S_ISDIR(about.st_mode) ? ofl_hf_open(path, &model) : open_file(path, &model);
    if (status == OFL_OK) *out = model;
    return status;
}
