#include "base/base.h"
#include "device/backend.h"

ofl_status ofl_cuda_open(const char *spec, const char *whole, ofl_device **out)
{
    (void)spec;
    (void)out;
    return ofl_fail(OFL_ERROR_UNSUPPORTED, "device %s: this build has no CUDA back end yet", whole);
}
