#include "common/target.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BESIDE ".new"

static ofl_status no_memory(const char *path) { return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of host memory", path); }

static char *beside_of(const char *path)
{
    char *out = NULL;
    return asprintf(&out, "%s" BESIDE, path) < 0 ? NULL : out;
}

/* The folder of a name. */
static bool stat_folder(const char *path, struct stat *out)
{
    char *copy = strdup(path);
    bool done = copy != NULL && stat(dirname(copy), out) == 0;
    free(copy);
    return done;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

bool target_same(const char *a, const char *b)
{
    struct stat first, second;
    if (strcmp(a, b) == 0) return true;
    bool here = stat(a, &first) == 0, there = stat(b, &second) == 0;
    if (here != there) return false;
    if (!here && (strcmp(last_part(a), last_part(b)) != 0 || !stat_folder(a, &first) || !stat_folder(b, &second))) return false;
    return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

ofl_status target_refuse(const char *option, const char *path, const char *used, const char *what)
{
    if (path == NULL || used == NULL) return OFL_OK;
    if (target_same(path, used))
        return app_fail(OFL_ERROR_ARGUMENT, "%s %s is %s, which would be overwritten; name another", option, path, what);
    char *beside = beside_of(path);
    if (beside == NULL) return no_memory(path);
    bool lost = target_same(beside, used);
    free(beside);
    if (!lost) return OFL_OK;
    return app_fail(OFL_ERROR_ARGUMENT, "%s %s is written as %s" BESIDE " at first, which is %s; name another", option, path, path, what);
}

static bool ends_in(const char *path, const char *end)
{
    size_t length = strlen(path), tail = strlen(end);
    return length > tail && strcmp(path + length - tail, end) == 0;
}

/* What a model's folder says of itself beside its weights. */
static bool describes_a_model(const char *path)
{
    const char *name = last_part(path);
    return strcmp(name, "config.json") == 0 || ends_in(path, "_config.json") || ends_in(path, ".index.json") ||
           strncmp(name, "tokenizer", 9) == 0;
}

ofl_status target_refuse_weights(const char *option, const char *path, const char *model)
{
    struct stat about, folder, whole;
    ofl_status status = target_refuse(option, path, model, "the model");
    if (status != OFL_OK || path == NULL || stat(path, &about) != 0) return status;
    bool inside = model != NULL && stat_folder(path, &folder) && stat(model, &whole) == 0 && folder.st_dev == whole.st_dev &&
                  folder.st_ino == whole.st_ino;
    if (inside && describes_a_model(path))
        return app_fail(OFL_ERROR_ARGUMENT, "%s %s is a part of the model, which would be overwritten; name another", option, path);
    if (!ends_in(path, ".gguf") && !ends_in(path, ".safetensors")) return OFL_OK;
    return app_fail(OFL_ERROR_ARGUMENT, "%s %s is there already and named like a file of weights; name another", option, path);
}
