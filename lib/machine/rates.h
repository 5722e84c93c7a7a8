/* Times copies between one device and the host (or another device). */
#ifndef OFLOAD_LIB_MACHINE_RATES_H
#define OFLOAD_LIB_MACHINE_RATES_H

#include "machine/machine_state.h"

#define OFL_LEAST_COPY_BYTES (UINT64_C(64) << 10) /* buffers of less measure nothing */

/* Streams and buffers; `pinned` is NULL where nothing can be page-locked, `on_peer` where there is no other device. */
typedef struct ofl_rig {
    ofl_device *device, *peer;
    ofl_stream *stream, *other;
    char *on_device, *on_peer, *pinned, *pageable;
    uint64_t bytes; /* of each buffer */
    bool once;      /* the virtual clock repeats itself: no waking, one run of each */
} ofl_rig;

/* free_bytes: of the device; a quarter of it is used at most. What was opened is closed again on failure. */
ofl_status ofl_rig_open(ofl_rig *rig, ofl_device *device, ofl_device *peer, uint64_t free_bytes);
void ofl_rig_close(ofl_rig *rig);

/* A rate counts only if the bytes arrive: there and back they go, by both kinds of memory where there are both. */
ofl_status ofl_rig_verify(const ofl_rig *rig);

/* By size, with the fit. */
ofl_status ofl_measure_line(const ofl_rig *rig, ofl_path path, ofl_link_line *out);

/* Copies of pinned memory in one direction while others go on in the other, or the device computes. `alone`: the same without; `other`: the
 * other direction. One point; none where what was to go on meanwhile ended too early. */
ofl_status ofl_measure_both_ways(const ofl_rig *rig, ofl_direction direction, const ofl_link_line *alone, const ofl_link_line *other,
                                 ofl_link_line *out);
ofl_status ofl_measure_computing(const ofl_rig *rig, const ofl_probe_options *options, const ofl_link_line *alone, ofl_link_line *out);

/* Queues copies to the device that take about 20 ms by the rate of `alone`; returns without waiting (ofl_stream_wait on rig->stream). */
ofl_status ofl_rig_keep_busy(const ofl_rig *rig, const ofl_link_line *alone);

#endif
