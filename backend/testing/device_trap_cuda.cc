#include "backend/cuda/cuda_status.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/testing/device_trap.h"
#include "backend/testing/trap_kernel.h"

namespace seq2seq {

Status TrapDevice() {
  SEQ2SEQ_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create(StreamPriority::kHigh));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(LaunchTrap(stream.get()));
  return OkStatus();
}

}  // namespace seq2seq
