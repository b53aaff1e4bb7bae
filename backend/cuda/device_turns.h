// Who has the device: decode steps and slices of encodes take turns.
#ifndef SEQ2SEQ_BACKEND_CUDA_DEVICE_TURNS_H_
#define SEQ2SEQ_BACKEND_CUDA_DEVICE_TURNS_H_

#include <cuda_runtime.h>

#include <mutex>

#include "backend/core/status.h"
#include "backend/cuda/cuda_event.h"
#include "backend/cuda/cuda_status.h"

namespace seq2seq {

// What one side queues starts when what the other has queued before it has ended. Two kernels at a
// time would be no faster: an encode fills the device, and each of a step's many small kernels
// would wait for blocks of the encode to make room.
//
// So work that was queued later never overtakes: steps are in one stream, slices in another, and
// across the two the turns order them. A step therefore reads what a slice that was queued before
// it has written, whether the slice has ended or not; and KV blocks may change hands as soon as all
// work that names them for their old owner is queued: whatever the new owner's slices and steps
// write there is written later.
//
// Threads: any; steps come from one thread. A call waits while another queues its work (tens of
// microseconds for a step, up to a millisecond for a slice), never for the device. The lifetimes of
// streams and of work queued don't matter to it.
class DeviceTurns {
 public:
  [[nodiscard]] Status Init() {
    SEQ2SEQ_ASSIGN_OR_RETURN(step_ended_, CudaEvent::CreateForStreams());
    SEQ2SEQ_ASSIGN_OR_RETURN(slice_ended_, CudaEvent::CreateForStreams());
    return OkStatus();
  }

  // Queues a step: queue() puts it on `stream`, and returns Status.
  template <typename Queue>
  [[nodiscard]] Status Step(cudaStream_t stream, Queue queue) {
    return Take(slice_ended_, step_ended_, stream, queue);
  }
  // The same for a slice of an encode.
  template <typename Queue>
  [[nodiscard]] Status Slice(cudaStream_t stream, Queue queue) {
    return Take(step_ended_, slice_ended_, stream, queue);
  }

  bool StepInFlight() const { return cudaEventQuery(step_ended_.get()) == cudaErrorNotReady; }
  // Of the last step queued. For the thread that queues steps: another's would be a later one.
  const CudaEvent& step_ended() const { return step_ended_; }

 private:
  template <typename Queue>
  Status Take(const CudaEvent& others, const CudaEvent& own, cudaStream_t stream, Queue queue) {
    std::lock_guard lock(mutex_);
    // An event that was never recorded counts as ended.
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stream, others.get(), 0));
    SEQ2SEQ_RETURN_IF_ERROR(queue());
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaEventRecord(own.get(), stream));
    return OkStatus();
  }

  std::mutex mutex_;
  CudaEvent step_ended_;   // the last one queued
  CudaEvent slice_ended_;  // likewise
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_DEVICE_TURNS_H_
