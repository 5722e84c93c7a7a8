/* Status codes and the sentence behind the last failure. */
#ifndef OFLOAD_STATUS_H
#define OFLOAD_STATUS_H

#include <stdint.h>

#if defined(_WIN32)
#define OFL_API
#else
#define OFL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, value, text). Values never change and are never reused.
 * 0 done, > 0 not an error, < 0 an error; the hundreds say what the caller can do about it: 1 change the call or the input, 2 try with less
 * or later, 3 the device is gone: destroy what stands on it and open it again, 4 the model cannot be placed, 5 a fault of this library. */
#define OFL_STATUS_LIST(X)                                                   \
    X(OFL_OK, 0, "done")                                                     \
    X(OFL_NOT_READY, 1, "not ready yet")                                     \
    X(OFL_END, 2, "nothing is left")                                         \
    /* the caller's mistake: change the call or the input */                 \
    X(OFL_ERROR_ARGUMENT, -101, "invalid argument")                          \
    X(OFL_ERROR_STATE, -102, "call not allowed in this state")               \
    X(OFL_ERROR_UNSUPPORTED, -103, "not supported")                          \
    X(OFL_ERROR_FORMAT, -104, "malformed file")                              \
    X(OFL_ERROR_NOT_FOUND, -105, "not found")                                \
    X(OFL_ERROR_MISMATCH, -106, "does not belong together")                  \
    X(OFL_ERROR_OVERFLOW, -107, "a size overflows 64 bits")                  \
    /* try with less, or later */                                            \
    X(OFL_ERROR_HOST_MEMORY, -201, "out of host memory")                     \
    X(OFL_ERROR_DEVICE_MEMORY, -202, "out of device memory")                 \
    X(OFL_ERROR_PINNED_MEMORY, -203, "out of pinnable host memory")          \
    X(OFL_ERROR_IO, -204, "input or output failed")                          \
    X(OFL_ERROR_CANCELLED, -205, "cancelled")                                \
    /* the device is gone: destroy what stands on it, open it again */       \
    X(OFL_ERROR_DEVICE_LOST, -301, "device lost")                            \
    X(OFL_ERROR_NO_DRIVER, -302, "no device driver")                         \
    X(OFL_ERROR_NO_DEVICE, -303, "no such device")                           \
    X(OFL_ERROR_RUNTIME, -304, "device runtime failed")                      \
    /* the model cannot be placed in what was given */                       \
    X(OFL_ERROR_NO_FIT, -401, "does not fit")                                \
    /* a fault of this library */                                            \
    X(OFL_ERROR_INTERNAL, -501, "internal error")

/* One of OFL_STATUS_LIST. */
typedef int32_t ofl_status;

enum {
#define OFL_STATUS_ENUM(name, value, text) name = value,
    OFL_STATUS_LIST(OFL_STATUS_ENUM)
#undef OFL_STATUS_ENUM
};

/* What failed last on the calling thread. The pointers are borrowed and valid until the next failing call on that thread. */
typedef struct ofl_diagnostic {
    ofl_status status;       /* OFL_OK: nothing has failed yet on this thread */
    const char *message;     /* "what failed: why; what to do", never NULL */
    int64_t runtime_code;    /* errno or the device runtime's own code, 0 if none */
    uint64_t bytes_needed;   /* where the failure is about room, else 0 */
    uint64_t bytes_available;
} ofl_diagnostic;

/* "OFL_ERROR_IO"; "?" for an unknown code. Static. Any thread. */
OFL_API const char *ofl_status_name(ofl_status status);
/* "input or output failed"; "?" for an unknown code. Static. Any thread. */
OFL_API const char *ofl_status_text(ofl_status status);

/* The calling thread's last failure. Never NULL; borrowed until the next failing call on this thread. A success does not clear it. */
OFL_API const ofl_diagnostic *ofl_diagnostic_get(void);
/* Its sentence alone, as ofl_diagnostic_get()->message. */
OFL_API const char *ofl_error_message(void);

/* Frees a string that this library handed out (JSON text). NULL is allowed. */
OFL_API void ofl_string_free(char *text);

/* "MAJOR.MINOR.PATCH" of the library that runs. Static. Any thread. */
OFL_API const char *ofl_version(void);

#ifdef __cplusplus
}
#endif
#endif
