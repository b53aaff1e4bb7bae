// An executable CUDA graph with an owner.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_GRAPH_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_GRAPH_H_

#include <cuda_runtime.h>

#include <utility>

#include "backend/core/status.h"
#include "backend/cuda/cuda_status.h"

namespace seq2seq {

// Movable; empty when default-constructed.
class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(CudaGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  CudaGraph& operator=(CudaGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~CudaGraph() {
    if (graph_ != nullptr) static_cast<void>(cudaGraphExecDestroy(graph_));
  }

  // Records what `record()` (returning Status) queues on `stream`, and uploads it to the device.
  // record() may be called several times: a wait for the whole device on another thread, such as
  // libraries do when they are given up, takes a capture away.
  template <typename Record>
  [[nodiscard]] static Result<CudaGraph> Capture(cudaStream_t stream, Record record) {
    constexpr int kAttempts = 20;
    cudaGraph_t captured = nullptr;
    Status recorded;
    cudaError_t ended = cudaErrorStreamCaptureInvalidated;
    for (int i = 0; i < kAttempts && ended == cudaErrorStreamCaptureInvalidated; ++i) {
      SEQ2SEQ_RETURN_IF_CUDA_ERROR(
          cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      recorded = record();
      ended = cudaStreamEndCapture(stream, &captured);
    }
    CudaGraph graph;
    cudaError_t made = ended;
    if (recorded && ended == cudaSuccess) made = cudaGraphInstantiate(&graph.graph_, captured, 0);
    if (captured != nullptr) static_cast<void>(cudaGraphDestroy(captured));
    if (!recorded) return std::unexpected(recorded.error());
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(made);
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaGraphUpload(graph.graph_, stream));
    return graph;
  }

  cudaGraphExec_t get() const { return graph_; }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_GRAPH_H_
