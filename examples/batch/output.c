#include "batch/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SYNC_SECONDS 1.0

static double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static ofl_status failed(const char *path, const char *what) { return app_fail(OFL_ERROR_IO, "%s: %s: %s", path, what, strerror(errno)); }

/* Between the opening and the lock another run may have renamed a new file over this one. */
static bool is_named(int fd, const char *path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

ofl_status output_open(const char *path, output *out)
{
    struct stat about;
    output o = {.path = strdup(path), .fd = -1, .synced_at = seconds_now()};
    if (o.path == NULL) return app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", path);
    ofl_status status = OFL_OK;
    o.fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
    o.created = o.fd >= 0;
    if (o.fd < 0 && errno == EEXIST) o.fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
    if (o.fd < 0 || fstat(o.fd, &about) != 0) status = failed(path, "cannot be opened for writing");
    else if (!S_ISREG(about.st_mode)) status = app_fail(OFL_ERROR_IO, "%s: no regular file; a run that can be resumed needs one", path);
    else if (flock(o.fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        status = app_fail(OFL_ERROR_IO, "%s: another run is writing to it", path);
    else if (!is_named(o.fd, path))
        status = app_fail(OFL_ERROR_IO, "%s: another run has just put another file there; run again", path);
    else o.bytes = (uint64_t)about.st_size;
    if (status == OFL_OK) *out = o;
    else output_drop(&o);
    return status;
}

ofl_status output_open_read(const char *path, output *out)
{
    output o = {.path = strdup(path), .fd = open(path, O_RDONLY | O_CLOEXEC), .read_only = true};
    struct stat about;
    ofl_status status = OFL_OK;
    if (o.path == NULL) status = app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", path);
    else if (o.fd < 0 && errno == ENOENT) status = OFL_END;
    else if (o.fd < 0 || fstat(o.fd, &about) != 0) status = failed(path, "cannot be opened");
    else o.bytes = (uint64_t)about.st_size;
    if (status == OFL_OK) *out = o;
    else output_drop(&o);
    return status;
}

void output_leave_no_trace(output *o)
{
    if (o->created && o->bytes == 0) (void)unlink(o->path);
}

void output_drop(output *o)
{
    if (o->fd >= 0) (void)close(o->fd);
    free(o->path);
    *o = (output){.fd = -1};
}

ofl_status output_append(output *o, const char *record, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t wrote = write(o->fd, record + done, bytes - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            if (wrote == 0) errno = ENOSPC;
            int why = errno;
            if (done > 0) (void)ftruncate(o->fd, (off_t)o->bytes);
            errno = why;
            return failed(o->path, "writing a record failed; free some space and run again to go on");
        }
        done += (size_t)wrote;
    }
    o->bytes += bytes;
    o->dirty = true;
    return OFL_OK;
}

ofl_status output_sync(output *o, bool now)
{
    double at = seconds_now();
    if (!o->dirty || (!now && at - o->synced_at < SYNC_SECONDS)) return OFL_OK;
    if (fdatasync(o->fd) != 0) return failed(o->path, "syncing failed; what was written last may be lost, run again to go on");
    o->dirty = false;
    o->synced_at = at;
    return OFL_OK;
}

ofl_status output_cut(output *o, uint64_t bytes)
{
    if (ftruncate(o->fd, (off_t)bytes) != 0) return failed(o->path, "cutting a torn end off failed");
    o->bytes = bytes;
    o->dirty = true;
    return OFL_OK;
}

ofl_status output_close(output *o)
{
    ofl_status status = output_sync(o, true);
    if (o->fd >= 0 && close(o->fd) != 0 && status == OFL_OK) status = failed(o->path, "closing failed");
    o->fd = -1;
    output_drop(o);
    return status;
}

ofl_status output_read(const output *o, uint64_t offset, size_t bytes, char *to)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(o->fd, to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = ENODATA;
        if (got <= 0) return failed(o->path, "reading it back failed");
        done += (size_t)got;
    }
    return OFL_OK;
}

ofl_status output_replace_begin(const char *path, output_replacement *r)
{
    *r = (output_replacement){.out = {.fd = -1}};
    ofl_status status = whole_file_begin(path, &r->file);
    if (status != OFL_OK) return status;
    status = output_open(r->file.beside, &r->out);
    if (status == OFL_OK && r->out.bytes > 0) status = output_cut(&r->out, 0); /* left behind by a run that was killed */
    if (status != OFL_OK) output_replace_cancel(r);
    return status;
}

ofl_status output_replace_finish(output_replacement *r, output *out)
{
    char *path = strdup(r->file.path);
    ofl_status status = path != NULL ? output_sync(&r->out, true) : app_fail(OFL_ERROR_HOST_MEMORY, "%s: out of memory", r->file.path);
    if (status == OFL_OK) status = whole_file_finish(&r->file);
    if (status == OFL_OK && out != NULL) {
        output_drop(out);
        *out = r->out;
        free(out->path);
        out->path = path;
        path = NULL;
        r->out = (output){.fd = -1};
    }
    free(path);
    output_replace_cancel(r);
    return status;
}

void output_replace_cancel(output_replacement *r)
{
    output_drop(&r->out);
    whole_file_cancel(&r->file);
}
