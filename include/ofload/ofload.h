/* libofload: models bigger than the GPU's memory, at full precision. All headers.
 *
 * Reading order: model → machine → plan → engine; compute and front beside it; device below. Objects are opaque handles. Calls that take
 * one as const read, and may be made from several threads while none modifies it; all others modify and belong to one thread at a time
 * (devices and model readers allow more: see there).
 * Outputs are written on success alone; a handle's place is NULL after a failure. *_destroy and *_close take NULL.
 * Structs that callers fill start with struct_size = sizeof(the struct), the rest zero: zero is the default. */
#ifndef OFLOAD_OFLOAD_H
#define OFLOAD_OFLOAD_H

#include <ofload/status.h>
#include <ofload/device.h>
#include <ofload/model.h>
#include <ofload/machine.h>
#include <ofload/plan.h>
#include <ofload/compute.h>
#include <ofload/engine.h>
#include <ofload/front.h>

#endif
