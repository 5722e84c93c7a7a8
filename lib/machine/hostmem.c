#include "machine/hostmem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096u
#define NO_LIMIT UINT64_MAX
#define SENTINEL (UINT64_C(1) << 60) /* version 1 says "none" as a huge number */

/* The two versions of control groups, and where they are mounted by convention. */
typedef struct cgroup_kind {
    const char *mount;
    const char *limits[2]; /* files; the second may be NULL */
    const char *current;
    const char *inactive_file; /* field of memory.stat: page cache that is dropped first */
} cgroup_kind;

static const cgroup_kind version_2 = {"/sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", "inactive_file"};
static const cgroup_kind version_2_beside_1 = {"/sys/fs/cgroup/unified", {"memory.max", "memory.high"}, "memory.current", "inactive_file"};
static const cgroup_kind version_1 = {
    "/sys/fs/cgroup/memory", {"memory.limit_in_bytes", NULL}, "memory.usage_in_bytes", "total_inactive_file"};

/* The number behind `field` in a file of "field number" lines; field NULL: the file is the number. false: no such file or field, or no
 * number ("max"). */
static bool read_number(const char *path, const char *field, uint64_t *out)
{
    char line[256], *end = NULL;
    size_t skip = field != NULL ? strlen(field) : 0;
    bool found = false;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        if (field != NULL && (strncmp(line, field, skip) != 0 || line[skip + (line[skip] == ':')] != ' ')) continue;
        const char *digits = line + skip + strspn(line + skip, ": ");
        if (*digits < '0' || *digits > '9') break;
        *out = strtoull(digits, &end, 10);
        found = true;
    }
    (void)fclose(file);
    return found;
}

static bool read_in(const char *folder, const char *name, const char *field, uint64_t *out)
{
    char path[PATH_BYTES + 64];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path && read_number(path, field, out);
}

/* Lowers *out by the limit of one group. */
static void apply_group(const cgroup_kind *kind, const char *folder, ofl_host_room *out)
{
    uint64_t limit = NO_LIMIT, current = 0, cache = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t one;
        if (kind->limits[i] != NULL && read_in(folder, kind->limits[i], NULL, &one) && one < SENTINEL) limit = ofl_min_u64(limit, one);
    }
    if (limit == NO_LIMIT) return;
    (void)read_in(folder, kind->current, NULL, &current);
    (void)read_in(folder, "memory.stat", kind->inactive_file, &cache);
    uint64_t held = current > cache ? current - cache : 0;
    out->total_bytes = ofl_min_u64(out->total_bytes, limit);
    out->usable_bytes = ofl_min_u64(out->usable_bytes, limit > held ? limit - held : 0);
}

/* The group and all above it, the mount itself last. In a container the path may be the host's, with only its end or nothing of it visible:
 * what is not there sets no limit. */
static void apply_ancestors(const cgroup_kind *kind, const char *root, const char *group, ofl_host_room *out)
{
    char folder[PATH_BYTES];
    int mount = snprintf(folder, sizeof folder, "%s%s", root, kind->mount);
    if (mount < 0 || (size_t)mount + strlen(group) >= sizeof folder || strstr(group, "..") != NULL) group = "";
    if (mount < 0 || (size_t)mount >= sizeof folder) return;
    (void)strcpy(folder + mount, group);
    for (;;) {
        apply_group(kind, folder, out);
        char *slash = strrchr(folder + mount, '/');
        if (slash == NULL) return;
        *slash = '\0';
    }
}

/* "4:memory:/path" or, for version 2, "0::/path". */
static void apply_line(const char *root, char *line, ofl_host_room *out)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL) return;
    *controllers++ = '\0';
    *path++ = '\0';
    if (*controllers == '\0') {
        apply_ancestors(&version_2, root, path, out);
        apply_ancestors(&version_2_beside_1, root, path, out);
        return;
    }
    char *rest = NULL;
    for (char *name = strtok_r(controllers, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        if (strcmp(name, "memory") == 0) apply_ancestors(&version_1, root, path, out);
    }
}

static void apply_groups(const char *root, ofl_host_room *out)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path) return;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return;
    while (fgets(line, sizeof line, file) != NULL) apply_line(root, line, out);
    (void)fclose(file);
}

ofl_status ofl_host_room_read(const char *root, ofl_host_room *out)
{
    char path[PATH_BYTES];
    uint64_t total_kib = 0, available_kib = 0;
    ofl_host_room memory;
    if (snprintf(path, sizeof path, "%s/proc/meminfo", root) >= (int)sizeof path)
        return ofl_fail(OFL_ERROR_ARGUMENT, "host memory: the root is too long");
    if (!read_number(path, "MemTotal", &total_kib) || !read_number(path, "MemAvailable", &available_kib) ||
        !ofl_mul_u64(total_kib, 1024, &memory.total_bytes) || !ofl_mul_u64(available_kib, 1024, &memory.usable_bytes))
        return ofl_fail(OFL_ERROR_UNSUPPORTED, "host memory: %s does not say how much there is", path);
    apply_groups(root, &memory);
    *out = memory;
    return OFL_OK;
}
