/* libofload: models bigger than the GPU's memory, at full precision. All headers.
 *
 * Reading order: model → machine → plan → engine; compute and front beside it; device below. The smallest whole programs are in
 * examples/minimal.
 *
 * What holds for every call, and is not said again at each:
 * - Objects are opaque handles. Calls that take one as const read, and may be made from several threads while none modifies it; all others
 *   modify and belong to one thread at a time (devices and model readers allow more: see there).
 * - ofl_status: 0 done, above 0 no error, below 0 an error, whose sentence ofl_error_message() gives to the thread that saw it. Beside the
 *   errors named at a function: OFL_ERROR_ARGUMENT for NULL where an object or a place is needed, for an index out of range, for a struct
 *   without its size; OFL_ERROR_HOST_MEMORY; OFL_ERROR_INTERNAL, a fault of this library.
 * - Outputs (`out`, `*_out`) are written on success alone; a handle's place is NULL after a failure. *_destroy and *_close take NULL.
 * - Structs that callers fill, to give or to get, start with struct_size = sizeof(the struct), the rest zero: zero is the default. An older
 *   program's smaller struct is taken; fields that this library does not know must be zero. Those marked "frozen layout" stand in arrays.
 * - Strings and arrays that are handed out are borrowed from the object asked, and live as long as it does, unless more is said. Text is
 *   UTF-8. What is given in is copied, unless it is said to be borrowed.
 * - Sizes are bytes, times seconds, rates bytes or operations per second; the name says so (_bytes, _seconds, _ns). Counts are plain. */
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
