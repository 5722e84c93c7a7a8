#include "common/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ofl_status failed(const char *path, const char *what) { return app_fail(OFL_ERROR_IO, "%s %s: %s", path, what, strerror(errno)); }

static void end(whole_file *file)
{
    free(file->path);
    free(file->beside);
    *file = (whole_file){0};
}

ofl_status whole_file_check(const char *path)
{
    struct stat about;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        return app_fail(OFL_ERROR_IO, "%s is there and no regular file; name another", path);
    char *copy = strdup(path);
    if (copy == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", path);
    ofl_status status = stat(dirname(copy), &about) == 0 ? OFL_OK : failed(path, "cannot be written");
    free(copy);
    return status;
}

ofl_status whole_file_begin(const char *path, whole_file *out)
{
    ofl_status status = whole_file_check(path);
    if (status != OFL_OK) return status;
    char *behind = realpath(path, NULL); /* NULL: not there yet */
    whole_file file = {.path = behind != NULL ? behind : strdup(path)};
    if (file.path != NULL && asprintf(&file.beside, "%s.new", file.path) >= 0) {
        *out = file;
        return OFL_OK;
    }
    free(file.path);
    return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", path);
}

/* A rename lasts only once its folder is synced. */
static ofl_status sync_folder(const char *path)
{
    char *copy = strdup(path);
    if (copy == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    ofl_status status = OFL_OK;
    /* EINVAL: a file system that has no such sync. */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) status = failed(path, "is written, but syncing its folder failed");
    if (fd >= 0) (void)close(fd);
    return status;
}

ofl_status whole_file_finish(whole_file *file)
{
    ofl_status status = OFL_OK;
    if (rename(file->beside, file->path) == 0) {
        status = sync_folder(file->path);
        end(file);
    } else {
        status = failed(file->path, "cannot be put in its place");
        whole_file_cancel(file);
    }
    return status;
}

void whole_file_cancel(whole_file *file)
{
    if (file->beside != NULL) (void)unlink(file->beside);
    end(file);
}

static ofl_status write_all(const whole_file *file, int fd, const char *text, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t wrote = write(fd, text + done, bytes - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote == 0) errno = ENOSPC;
        if (wrote <= 0) return failed(file->path, "cannot be written");
        done += (size_t)wrote;
    }
    return fdatasync(fd) == 0 || errno == EINVAL ? OFL_OK : failed(file->path, "cannot be written");
}

ofl_status whole_file_write(const char *path, const char *text, size_t bytes)
{
    whole_file file;
    ofl_status status = whole_file_begin(path, &file);
    if (status != OFL_OK) return status;
    int fd = open(file.beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    status = fd >= 0 ? write_all(&file, fd, text, bytes) : failed(path, "cannot be written");
    if (fd >= 0 && close(fd) != 0 && status == OFL_OK) status = failed(path, "cannot be written");
    if (status == OFL_OK) return whole_file_finish(&file);
    whole_file_cancel(&file);
    return status;
}
