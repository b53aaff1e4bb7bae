// How the launchers start kernels.
#ifndef SEQ2SEQ_BACKEND_KERNELS_LAUNCH_H_
#define SEQ2SEQ_BACKEND_KERNELS_LAUNCH_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace seq2seq::kernels {

// Where and how a launcher queues its kernel.
struct LaunchContext {
  cudaStream_t stream = nullptr;
  // Programmatic dependent launch (compute capability 9.0 and later): the kernel may start while
  // the one before it still runs. Right only if the two are in one stream with nothing between
  // them.
  bool dependent = false;
  // Shared memory that a block may have, static and dynamic, if the device allows more.
  size_t shared_limit = std::numeric_limits<size_t>::max();
};

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic
  int cluster_z = 1;        // blocks along z that form a cluster
};

// Queues `kernel` and returns the launch's error. The default stream, which all others may have to
// wait for, is refused.
template <typename... Params, typename... Args>
cudaError_t Launch(void (*kernel)(Params...), const LaunchShape& shape,
                   const LaunchContext& context, Args... args) {
  if (context.stream == nullptr) return cudaErrorInvalidResourceHandle;
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (context.dependent) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  if (shape.cluster_z > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = 1;
    attributes[count].val.clusterDim.y = 1;
    attributes[count].val.clusterDim.z = static_cast<unsigned>(shape.cluster_z);
    ++count;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, Params(args)...);
}

// Shared memory that a block may have on the current device, static and dynamic.
inline cudaError_t BlockSharedLimit(const LaunchContext& context, size_t* bytes) {
  int device = 0;
  int most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  *bytes = std::min(static_cast<size_t>(most), context.shared_limit);
  return error;
}

// Allows launches of `kernel` on the current device all the dynamic shared memory that there is.
// The allowance is the process's: were it what one launch needs, a launch of another thread might
// find it too small. *bytes: of that what `context` permits.
template <typename... Params>
cudaError_t AllowSharedMemory(void (*kernel)(Params...), const LaunchContext& context,
                              size_t* bytes) {
  size_t device_limit = 0;
  size_t limit = 0;
  cudaFuncAttributes attributes{};
  for (const cudaError_t error :
       {BlockSharedLimit({}, &device_limit), BlockSharedLimit(context, &limit),
        cudaFuncGetAttributes(&attributes, kernel)}) {
    if (error != cudaSuccess) return error;
  }
  const size_t own = attributes.sharedSizeBytes;
  *bytes = limit - std::min(limit, own);
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(device_limit - std::min(device_limit, own)));
}

// Launches a kernel with more shared memory than the default, which it must be allowed first.
// Allowing is cheap, and repeated only where a graph is captured.
template <typename... Params, typename... Args>
cudaError_t LaunchWithShared(void (*kernel)(Params...), const LaunchShape& shape,
                             const LaunchContext& context, Args... args) {
  size_t allowed = 0;
  const cudaError_t error = AllowSharedMemory(kernel, context, &allowed);
  if (error != cudaSuccess) return error;
  if (shape.shared_bytes > allowed) return cudaErrorInvalidValue;
  return Launch(kernel, shape, context, args...);
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_LAUNCH_H_
