// How the launchers start kernels.
#ifndef SEQ2SEQ_BACKEND_KERNELS_LAUNCH_H_
#define SEQ2SEQ_BACKEND_KERNELS_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstddef>

namespace seq2seq::kernels {

// Where and how a launcher queues its kernel.
struct LaunchContext {
  cudaStream_t stream = nullptr;
  // Programmatic dependent launch (compute capability 9.0 and later): the kernel may start while
  // the one before it still runs. Right only if the two are in one stream with nothing between
  // them.
  bool dependent = false;
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

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_LAUNCH_H_
