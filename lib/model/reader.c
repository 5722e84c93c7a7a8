/* Tensor data read again and again: the files stay open, and their bytes pass the page cache by where the file system allows it. */
#include "model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define PAGE OFL_PAGE_BYTES
_Static_assert(PAGE == OFL_MODEL_READ_ALIGNMENT, "callers align by it");

typedef struct open_file {
    int descriptor;
    atomic_bool cached; /* direct reads were refused */
} open_file;

struct ofl_model_reader {
    const ofl_model *model;
    open_file *files;
    uint64_t opened;
};

static ofl_status open_one(const ofl_model_file *file, open_file *out)
{
    out->descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (out->descriptor < 0 && errno == EINVAL) {
        out->descriptor = open(file->path, O_RDONLY | O_CLOEXEC);
        out->cached = true;
    }
    if (out->descriptor < 0) return ofl_fail_code(OFL_ERROR_IO, errno, "%s: %s", file->path, strerror(errno));
    return OFL_OK;
}

ofl_status ofl_model_reader_open(const ofl_model *model, ofl_model_reader **out)
{
    if (out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "model reader: no place for it given");
    *out = NULL;
    if (model == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "model reader: no model given");
    ofl_model_reader *reader = ofl_alloc(1, sizeof *reader);
    if (reader != NULL) reader->files = ofl_alloc(model->file_count, sizeof *reader->files);
    ofl_status status = reader != NULL && (reader->files != NULL || model->file_count == 0)
                            ? OFL_OK
                            : ofl_fail(OFL_ERROR_HOST_MEMORY, "model reader: out of host memory; free some");
    for (uint64_t i = 0; i < model->file_count && status == OFL_OK; i++) {
        status = open_one(&model->files[i], &reader->files[i]);
        reader->opened += status == OFL_OK;
    }
    if (reader != NULL) reader->model = model;
    if (status == OFL_OK) *out = reader;
    else ofl_model_reader_close(reader);
    return status;
}

void ofl_model_reader_close(ofl_model_reader *reader)
{
    if (reader == NULL) return;
    for (uint64_t i = 0; i < reader->opened; i++) (void)close(reader->files[i].descriptor);
    ofl_free(reader->files);
    ofl_free(reader);
}

/* Some file systems open a file for direct reads and then refuse them: from then on the page cache takes part. */
static bool give_up_direct(open_file *file)
{
    if (file->cached) return false;
    int flags = fcntl(file->descriptor, F_GETFL);
    if (flags < 0 || fcntl(file->descriptor, F_SETFL, flags & ~O_DIRECT) != 0) return false;
    file->cached = true;
    return true;
}

/* Whole pages from `first`, until at least `needed` bytes are there: the file may end within the last page. */
static ofl_status read_pages(const ofl_model_file *about, open_file *file, uint64_t first, uint64_t needed, char *to)
{
    uint64_t whole = (needed + PAGE - 1) / PAGE * PAGE, got = 0;
    while (got < needed) {
        ssize_t count = pread(file->descriptor, to + got, (size_t)(whole - got), (off_t)(first + got));
        if (count < 0 && (errno == EINTR || (errno == EINVAL && give_up_direct(file)))) continue;
        if (count < 0)
            return ofl_fail_code(OFL_ERROR_IO, errno, "%s: cannot read at %llu: %s", about->path, (unsigned long long)(first + got),
                                 strerror(errno));
        if (count == 0)
            return ofl_fail(OFL_ERROR_IO, "%s: ends at %llu, data were expected there", about->path, (unsigned long long)(first + got));
        got += (uint64_t)count;
    }
    if (file->cached)
        (void)posix_fadvise(file->descriptor, (off_t)first, (off_t)whole, POSIX_FADV_DONTNEED); /* not read again before others are */
    return OFL_OK;
}

static ofl_status check_range(const ofl_model *model, uint32_t index, uint64_t offset, uint64_t bytes, const void *buffer)
{
    if (index >= model->tensor_count) return ofl_fail(OFL_ERROR_ARGUMENT, "model reader: there is no tensor %u", (unsigned)index);
    const ofl_tensor *tensor = &model->tensors[index];
    if (offset > tensor->bytes || bytes > tensor->bytes - offset)
        return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %s: bytes %llu + %llu are beyond its %llu", tensor->name, (unsigned long long)offset,
                        (unsigned long long)bytes, (unsigned long long)tensor->bytes);
    if (buffer == NULL || (uintptr_t)buffer % PAGE != 0)
        return ofl_fail(OFL_ERROR_ARGUMENT, "tensor %s: the buffer to read into is missing, or does not begin at a multiple of %u",
                        tensor->name, PAGE);
    return OFL_OK;
}

ofl_status ofl_model_reader_read(ofl_model_reader *reader, uint32_t index, uint64_t offset, uint64_t bytes, void *buffer,
                                 const void **data_out)
{
    if (reader == NULL || data_out == NULL) return ofl_fail(OFL_ERROR_ARGUMENT, "model reader: none given, or no place for the result");
    const ofl_model *model = reader->model;
    ofl_status status = check_range(model, index, offset, bytes, buffer);
    if (status != OFL_OK) return status;
    const ofl_tensor *tensor = &model->tensors[index];
    *data_out = buffer;
    if (tensor->file == OFL_NO_FILE || bytes == 0) return ofl_model_tensor_read(model, index, offset, bytes, buffer);
    uint64_t at = tensor->at.offset + offset, before = at % PAGE; /* the tensor's extent was checked when the model was read */
    open_file *file = &reader->files[tensor->file];
    status = ofl_model_file_check(&model->files[tensor->file], file->descriptor);
    if (status == OFL_OK) status = read_pages(&model->files[tensor->file], file, at - before, before + bytes, buffer);
    *data_out = (const char *)buffer + before;
    return status;
}
