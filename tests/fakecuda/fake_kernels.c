/* Programs that hold kernels register them when they start, and launch them: the first is taken note of by nobody, the second fails as it
 * does where a device has no code for it. These names are the compiler's, of no header. */
#include "fakecuda.h"

void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, void *thread, void *block,
                            void *blocks, void *grid, int *warp);
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);

static void *registered;

void **__cudaRegisterFatBinary(void *binary)
{
    (void)binary;
    return &registered;
}

void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, void *thread, void *block,
                            void *blocks, void *grid, int *warp)
{
    (void)handle, (void)host, (void)device, (void)name, (void)threads, (void)thread, (void)block, (void)blocks, (void)grid, (void)warp;
}

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *function)
{
    (void)out, (void)function;
    return fake_remember(cudaErrorNoKernelImageForDevice);
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
    FAULT("cudaLaunchKernel");
    (void)function, (void)grid, (void)block, (void)args, (void)shared, (void)stream;
    return fake_remember(cudaErrorNoKernelImageForDevice);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
    return cudaLaunchKernel((const void *)kernel, grid, block, args, shared, stream);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    (void)grid, (void)block, (void)shared, (void)stream;
    return 1;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    (void)grid, (void)block, (void)shared, (void)stream;
    return fake_remember(cudaErrorMissingConfiguration);
}
