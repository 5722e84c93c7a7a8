/* Which reader a path needs is told from what is there, not from its name. */
#include "model/gguf.h"
#include "model/hf.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static ofl_status open_file(const char *path, ofl_model **out)
{
    ofl_reader reader;
    char magic[4] = "";
    ofl_status status = ofl_reader_open(&reader, path);
    if (status != OFL_OK) return status;
    uint64_t bytes = reader.end;
    if (bytes >= sizeof magic) status = ofl_reader_take(&reader, magic, sizeof magic, "the header");
    ofl_reader_close(&reader);
    if (status != OFL_OK) return status;
    if (bytes < sizeof magic) return ofl_fail(OFL_ERROR_FORMAT, "%s: %llu bytes are too short for a model", path, (unsigned long long)bytes);
    if (memcmp(magic, "GGUF", sizeof magic) == 0) return ofl_gguf_open(path, out);
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
        return ofl_fail_code(status, errno, "%s: %s; give the path of a GGUF file, a Hugging Face folder or a description", path, strerror(errno));
    }
    ofl_status status = S_ISDIR(about.st_mode) ? ofl_hf_open(path, &model) : open_file(path, &model);
    if (status == OFL_OK) *out = model;
    return status;
}
