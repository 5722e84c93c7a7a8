/* Copies of one size are queued back to back and timed together, so that the cost of waiting for them is shared; the median of several such
 * runs is taken at each of a few sizes, after the path was kept busy for a moment (a link that slept starts slow). */
#include "machine/rates.h"

#include <math.h>
#include <string.h>

#include "machine/fit.h"

#define RUNS 5u
#define FEWER_RUNS 3u   /* of all but the path that matters most */
#define MOST_COPIES 64u /* queued in one run */
#define LEAST_SMALL_BYTES (UINT64_C(4) << 10)
#define MOST_BYTES (UINT64_C(64) << 20)
#define RUN_SECONDS 0.02
#define VERIFIED_BYTES (UINT64_C(4) << 20)
#define WAKE_SECONDS 0.05
#define SLOW_RUNS 3u
#define MOST_LOAD 4096u /* pieces of what goes on meanwhile */
#define TRIES 4u

typedef struct copy_kind { ofl_direction direction; ofl_host_memory memory; bool between; } copy_kind;
static const copy_kind kinds[OFL_PATH_COUNT] = {
    [OFL_PATH_PINNED_TO_DEVICE] = {OFL_HOST_TO_DEVICE, OFL_HOST_PINNED, false},
    [OFL_PATH_PAGEABLE_TO_DEVICE] = {OFL_HOST_TO_DEVICE, OFL_HOST_PAGEABLE, false},
    [OFL_PATH_DEVICE_TO_PINNED] = {OFL_DEVICE_TO_HOST, OFL_HOST_PINNED, false},
    [OFL_PATH_DEVICE_TO_PAGEABLE] = {OFL_DEVICE_TO_HOST, OFL_HOST_PAGEABLE, false},
    [OFL_PATH_DEVICE_TO_DEVICE] = {OFL_HOST_TO_DEVICE, OFL_HOST_PINNED, true},
};

/* `offset` lets copies of both directions go on at once on bytes of their own. */
static ofl_status put_copy(const ofl_rig *rig, ofl_stream *stream, const copy_kind *kind, uint64_t offset, uint64_t bytes)
{
    char *host = (kind->memory == OFL_HOST_PINNED ? rig->pinned : rig->pageable), *there = rig->on_device + offset;
    if (kind->between) return ofl_copy_peer(rig->device, stream, rig->peer, rig->on_peer, there, bytes);
    bool down = kind->direction == OFL_HOST_TO_DEVICE;
    void *to = down ? there : host + offset;
    const void *from = down ? host + offset : there;
    return ofl_copy(rig->device, stream, kind->direction, to, from, bytes, kind->memory);
}

/* Seconds of one copy among `copies` queued together. */
static ofl_status time_copies(const ofl_rig *rig, const copy_kind *kind, uint64_t bytes, uint64_t copies, double *seconds_out)
{
    ofl_status status = OFL_OK;
    uint64_t before = ofl_device_now_ns(rig->device);
    for (uint64_t i = 0; status == OFL_OK && i < copies; i++) status = put_copy(rig, rig->stream, kind, 0, bytes);
    ofl_status waited = ofl_stream_wait(rig->device, rig->stream);
    *seconds_out = (double)(ofl_device_now_ns(rig->device) - before) * 1e-9 / (double)copies;
    return status != OFL_OK ? status : waited;
}

/* Keeps the path busy for a moment; the rate it ends at tells how much to copy in a run. A size is too much when it is slow several times
 * in a row: once, it may have been the machine. */
static ofl_status wake(const ofl_rig *rig, const copy_kind *kind, uint64_t *largest_out)
{
    double seconds = 0, spent = 0;
    uint64_t bytes = OFL_LEAST_COPY_BYTES;
    for (uint32_t i = 0, slow = 0; i < 100 && (spent < WAKE_SECONDS || slow < SLOW_RUNS); i++) {
        ofl_status status = time_copies(rig, kind, bytes, 1, &seconds);
        if (status != OFL_OK) return status;
        spent += seconds;
        bool grows = seconds < RUN_SECONDS / 2 && bytes * 2 <= rig->bytes;
        if (!grows && rig->once) break;
        slow = grows ? 0 : slow + 1;
        if (grows) bytes *= 2;
    }
    *largest_out = bytes;
    return OFL_OK;
}

static ofl_status median_copy(const ofl_rig *rig, const copy_kind *kind, uint64_t largest, uint32_t runs, ofl_copy_time *point)
{
    double seconds[RUNS];
    uint64_t copies = ofl_min_u64(largest / point->bytes, MOST_COPIES);
    if (rig->once) runs = 1;
    for (uint32_t i = 0; i < runs; i++) {
        ofl_status status = time_copies(rig, kind, point->bytes, copies, &seconds[i]);
        if (status != OFL_OK) return status;
    }
    point->seconds = ofl_median(seconds, runs);
    return OFL_OK;
}

static bool fit(ofl_link_line *line)
{
    ofl_copy_point points[OFL_LINE_POINTS_MAX];
    for (uint32_t i = 0; i < line->point_count; i++) points[i] = (ofl_copy_point){(double)line->points[i].bytes, line->points[i].seconds};
    return ofl_fit_copies(points, line->point_count, &line->start_seconds, &line->bytes_per_second);
}

static ofl_status measure_points(const ofl_rig *rig, ofl_path path, ofl_link_line *line)
{
    uint64_t largest = 0;
    ofl_status status = wake(rig, &kinds[path], &largest);
    *line = (ofl_link_line){.struct_size = sizeof *line};
    for (uint64_t bytes = largest; status == OFL_OK && line->point_count < OFL_LINE_POINTS_MAX && bytes >= LEAST_SMALL_BYTES; bytes /= 4) {
        ofl_copy_time *point = &line->points[line->point_count++];
        point->bytes = bytes;
        status = median_copy(rig, &kinds[path], largest, path == OFL_PATH_PINNED_TO_DEVICE ? RUNS : FEWER_RUNS, point);
    }
    return status;
}

/* Anew where a busy machine left times that do not rise. */
ofl_status ofl_measure_line(const ofl_rig *rig, ofl_path path, ofl_link_line *out)
{
    ofl_link_line line;
    bool fitted = false;
    for (uint32_t i = 0; i < TRIES && !fitted; i++) {
        ofl_status status = measure_points(rig, path, &line);
        if (status != OFL_OK) return status;
        fitted = fit(&line);
    }
    if (!fitted)
        return ofl_fail(OFL_ERROR_RUNTIME,
                        "probe: copies of %s to %s gave no rate (%s): their times do not rise with their size; try again on a quiet "
                        "machine",
                        ofl_bytes_text(line.points[line.point_count - 1].bytes).text, ofl_bytes_text(line.points[0].bytes).text,
                        ofl_path_label(path));
    *out = line;
    return OFL_OK;
}

/* What goes on meanwhile, a piece at a time on rig->other: copies the other way, or the caller's computation. */
typedef struct load {
    ofl_direction direction;
    uint64_t offset, bytes;
    const ofl_probe_options *options; /* NULL: copies */
    double seconds;                   /* of a piece */
} load;

static ofl_status put_load(const ofl_rig *rig, const load *l, uint64_t pieces)
{
    const copy_kind kind = {l->direction, OFL_HOST_PINNED, false};
    ofl_status status = OFL_OK;
    for (uint64_t i = 0; status == OFL_OK && i < pieces; i++) {
        if (l->options == NULL) status = put_copy(rig, rig->other, &kind, l->offset, l->bytes);
        else status = l->options->compute(l->options->context, rig->device, rig->other);
    }
    return status;
}

/* One run of `copies`, `pieces` of the load before them. *covered_out: the load outlasted the copies. */
static ofl_status time_under_load(const ofl_rig *rig, const load *l, ofl_direction direction, uint64_t bytes, uint64_t copies,
                                  uint64_t pieces, double *seconds_out, bool *covered_out)
{
    const copy_kind kind = {direction, OFL_HOST_PINNED, false};
    ofl_status status = put_load(rig, l, pieces);
    uint64_t before = ofl_device_now_ns(rig->device);
    for (uint64_t i = 0; status == OFL_OK && i < copies; i++) status = put_copy(rig, rig->stream, &kind, 0, bytes);
    ofl_status waited = ofl_stream_wait(rig->device, rig->stream);
    *seconds_out = (double)(ofl_device_now_ns(rig->device) - before) * 1e-9 / (double)copies;
    ofl_status left = status == OFL_OK && waited == OFL_OK ? ofl_stream_query(rig->device, rig->other) : OFL_OK;
    *covered_out = left == OFL_NOT_READY;
    ofl_status drained = ofl_stream_wait(rig->device, rig->other); /* nothing runs on when this returns */
    if (status == OFL_OK) status = waited;
    if (status == OFL_OK && left < 0) status = left;
    return status == OFL_OK ? drained : status;
}

/* More of the load in each try that it does not cover. */
static ofl_status measure_under_load(const ofl_rig *rig, const load *l, ofl_direction direction, uint64_t bytes, double alone_seconds,
                                     ofl_link_line *out)
{
    double seconds[FEWER_RUNS];
    uint64_t copies = (uint64_t)fmin(fmax(RUN_SECONDS / alone_seconds, 1), MOST_COPIES), tries = 0;
    double pieces = ceil(1.5 * (double)copies * alone_seconds / l->seconds) + 1;
    uint32_t runs = rig->once ? 1 : FEWER_RUNS;
    for (uint32_t run = 0; run < runs;) {
        bool covered = false;
        ofl_status status = time_under_load(rig, l, direction, bytes, copies, (uint64_t)fmin(pieces, MOST_LOAD), &seconds[run], &covered);
        if (status != OFL_OK) return status;
        if (covered) run++;
        else if (++tries == TRIES) return OFL_OK;
        else pieces *= 2;
    }
    out->struct_size = sizeof *out;
    out->point_count = 1;
    out->points[0] = (ofl_copy_time){bytes, ofl_median(seconds, runs)};
    out->bytes_per_second = (double)bytes / out->points[0].seconds;
    return OFL_OK;
}

static double line_seconds(const ofl_link_line *line, uint64_t bytes)
{
    return line->start_seconds + (double)bytes / line->bytes_per_second;
}

ofl_status ofl_measure_both_ways(const ofl_rig *rig, ofl_direction direction, const ofl_link_line *alone, const ofl_link_line *other,
                                 ofl_link_line *out)
{
    uint64_t bytes = ofl_min_u64(alone->points[0].bytes, rig->bytes / 2), offset = rig->bytes / 2; /* that half is for the other way */
    load l = {.direction = direction == OFL_HOST_TO_DEVICE ? OFL_DEVICE_TO_HOST : OFL_HOST_TO_DEVICE, .offset = offset};
    l.bytes = ofl_min_u64(other->points[0].bytes, rig->bytes / 2);
    l.seconds = line_seconds(other, l.bytes);
    *out = (ofl_link_line){0};
    return measure_under_load(rig, &l, direction, bytes, line_seconds(alone, bytes), out);
}

/* Time of one piece; that it is not over when the call returns shows that it is on the stream. */
static ofl_status time_piece(const ofl_rig *rig, load *l)
{
    uint64_t before = ofl_device_now_ns(rig->device);
    ofl_status status = put_load(rig, l, 1);
    ofl_status left = status == OFL_OK ? ofl_stream_query(rig->device, rig->other) : OFL_OK;
    ofl_status drained = ofl_stream_wait(rig->device, rig->other);
    l->seconds = (double)(ofl_device_now_ns(rig->device) - before) * 1e-9;
    if (status != OFL_OK || left < 0) return status != OFL_OK ? status : left;
    if (drained == OFL_OK && (left == OFL_OK || !(l->seconds > 0)))
        return ofl_fail(OFL_ERROR_ARGUMENT, "probe: the computation given was over when its call returned; put at least a millisecond of "
                                            "it on the stream and return without waiting");
    return drained;
}

ofl_status ofl_measure_computing(const ofl_rig *rig, const ofl_probe_options *options, const ofl_link_line *alone, ofl_link_line *out)
{
    load l = {.options = options};
    uint64_t bytes = alone->points[0].bytes;
    *out = (ofl_link_line){0};
    ofl_status status = time_piece(rig, &l); /* the first one may load code; the second counts */
    if (status == OFL_OK) status = time_piece(rig, &l);
    return status == OFL_OK ? measure_under_load(rig, &l, OFL_HOST_TO_DEVICE, bytes, line_seconds(alone, bytes), out) : status;
}

ofl_status ofl_rig_keep_busy(const ofl_rig *rig, const ofl_link_line *alone)
{
    uint64_t bytes = alone->points[0].bytes;
    const copy_kind *kind = &kinds[rig->pinned != NULL ? OFL_PATH_PINNED_TO_DEVICE : OFL_PATH_PAGEABLE_TO_DEVICE];
    double copies = fmin(fmax(RUN_SECONDS / line_seconds(alone, bytes), 1), MOST_COPIES);
    ofl_status status = OFL_OK;
    for (uint64_t i = 0; status == OFL_OK && i < (uint64_t)copies; i++) status = put_copy(rig, rig->stream, kind, 0, bytes);
    return status;
}

/* The largest power of two from the least to the most that is at most a quarter of what is free. */
static uint64_t buffer_bytes(uint64_t free_bytes)
{
    uint64_t bytes = MOST_BYTES;
    while (bytes > free_bytes / 4 && bytes > OFL_LEAST_COPY_BYTES) bytes /= 2;
    return bytes;
}

/* Smaller where so much cannot be page-locked; leaves rig->pinned NULL where not even the least can. */
static ofl_status pin_buffer(ofl_rig *rig)
{
    for (uint64_t bytes = rig->bytes; bytes >= OFL_LEAST_COPY_BYTES; bytes /= 2) {
        void *pinned = NULL;
        ofl_status status = ofl_device_host_alloc(rig->device, bytes, &pinned);
        rig->pinned = pinned;
        if (status == OFL_OK) rig->bytes = bytes;
        if (status != OFL_ERROR_PINNED_MEMORY && status != OFL_ERROR_UNSUPPORTED) return status;
    }
    return OFL_OK;
}

static ofl_status alloc_device(ofl_device *device, uint64_t bytes, char **out)
{
    void *pointer = NULL;
    ofl_status status = ofl_device_alloc(device, bytes, &pointer);
    *out = pointer;
    return status;
}

static ofl_status fill_rig(ofl_rig *rig)
{
    ofl_device_info info = {.struct_size = sizeof info};
    ofl_status status = ofl_device_info_get(rig->device, &info);
    rig->once = info.virtual_clock != 0;
    if (status == OFL_OK) status = ofl_stream_create(rig->device, &rig->stream);
    if (status == OFL_OK) status = ofl_stream_create(rig->device, &rig->other);
    if (status == OFL_OK) status = alloc_device(rig->device, rig->bytes, &rig->on_device);
    if (status == OFL_OK && rig->peer != NULL) status = alloc_device(rig->peer, rig->bytes, &rig->on_peer);
    if (status == OFL_OK) status = pin_buffer(rig);
    if (status != OFL_OK) return status;
    rig->pageable = ofl_alloc(rig->bytes, 1);
    if (rig->pageable == NULL)
        return ofl_fail(OFL_ERROR_HOST_MEMORY, "probe: no host memory for %s to copy; free some", ofl_bytes_text(rig->bytes).text);
    /* Pages that exist: an untouched one reads as the one zero page, from the cache. */
    if (rig->pinned != NULL) memset(rig->pinned, 0x5A, (size_t)rig->bytes);
    memset(rig->pageable, 0x5A, (size_t)rig->bytes);
    return OFL_OK;
}

ofl_status ofl_rig_open(ofl_rig *rig, ofl_device *device, ofl_device *peer, uint64_t free_bytes)
{
    *rig = (ofl_rig){.device = device, .peer = peer, .bytes = buffer_bytes(free_bytes)};
    ofl_status status = fill_rig(rig);
    if (status != OFL_OK) ofl_rig_close(rig);
    return status;
}

void ofl_rig_close(ofl_rig *rig)
{
    ofl_free(rig->pageable);
    ofl_device_host_free(rig->device, rig->pinned);
    ofl_device_free(rig->peer, rig->on_peer);
    ofl_device_free(rig->device, rig->on_device);
    ofl_stream_destroy(rig->device, rig->other);
    ofl_stream_destroy(rig->device, rig->stream);
    *rig = (ofl_rig){0};
}

static char next_byte(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1;
    return (char)(*state >> 56);
}

ofl_status ofl_rig_verify(const ofl_rig *rig)
{
    char *source = rig->pinned != NULL ? rig->pinned : rig->pageable;
    const copy_kind down = {OFL_HOST_TO_DEVICE, rig->pinned != NULL ? OFL_HOST_PINNED : OFL_HOST_PAGEABLE, false};
    const copy_kind back = {OFL_DEVICE_TO_HOST, OFL_HOST_PAGEABLE, false};
    uint64_t random = 1, wrong = 0, bytes = ofl_min_u64(rig->bytes, VERIFIED_BYTES);
    for (uint64_t i = 0; i < bytes; i++) source[i] = next_byte(&random);
    ofl_status status = put_copy(rig, rig->stream, &down, 0, bytes);
    ofl_status waited = ofl_stream_wait(rig->device, rig->stream);
    if (status == OFL_OK) status = waited;
    memset(rig->pageable, 0, (size_t)bytes);
    if (status == OFL_OK) status = put_copy(rig, rig->stream, &back, 0, bytes);
    waited = ofl_stream_wait(rig->device, rig->stream);
    if (status != OFL_OK || waited != OFL_OK) return status != OFL_OK ? status : waited;
    random = 1;
    for (uint64_t i = 0; i < bytes; i++) wrong += rig->pageable[i] != next_byte(&random);
    if (wrong == 0) return OFL_OK;
    return ofl_fail(OFL_ERROR_RUNTIME, "probe: of %s copied to the device and back, %s came back changed; no rate is given",
                    ofl_bytes_text(bytes).text, ofl_bytes_text(wrong).text);
}
