// cuBLASLt that counts calls, and fails some of them as a test says.
#ifndef SEQ2SEQ_BACKEND_CUDA_FAULTY_CUBLAS_LT_H_
#define SEQ2SEQ_BACKEND_CUDA_FAULTY_CUBLAS_LT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>

#include "backend/cuda/cublas_lt.h"

namespace seq2seq {

// One at a time in a process: functions of a C library have no object.
class FaultyCublasLt {
 public:
  enum class Fault : uint8_t { kStatus, kBadAlloc };
  static constexpr cublaslt::Code kFailure = 15;  // CUBLAS_STATUS_NOT_SUPPORTED

  // Wraps the machine's library.
  FaultyCublasLt() {
    Result<std::shared_ptr<const CublasLt>> real = CublasLt::Load();
    if (!real) throw std::runtime_error(real.error().message);
    TheState().real = *real;
    TheState().heuristics = 0;
    cublaslt::Calls calls = **real;
    calls.get_heuristic = GetHeuristic;
    calls.matmul = Matmul;
    wrapped_ = std::make_shared<CublasLt>(calls);
  }
  ~FaultyCublasLt() { TheState().to_fail = 0; }
  FaultyCublasLt(const FaultyCublasLt&) = delete;
  FaultyCublasLt& operator=(const FaultyCublasLt&) = delete;

  std::shared_ptr<const CublasLt> get() const { return wrapped_; }

  // How often algorithms were asked for.
  int64_t heuristics() const { return TheState().heuristics; }
  // The next products fail.
  void FailProducts(int64_t count, Fault fault = Fault::kStatus) {
    TheState().fault = fault;
    TheState().to_fail = count;
  }

 private:
  struct State {
    std::shared_ptr<const CublasLt> real;
    std::atomic<int64_t> heuristics = 0;
    std::atomic<int64_t> to_fail = 0;
    std::atomic<Fault> fault = Fault::kStatus;
  };

  static State& TheState() {
    static State state;
    return state;
  }

  static cublaslt::Code GetHeuristic(cublaslt::Handle handle, cublaslt::Descriptor matmul,
                                     cublaslt::Descriptor a, cublaslt::Descriptor b,
                                     cublaslt::Descriptor c, cublaslt::Descriptor d,
                                     cublaslt::Descriptor preference, int requested,
                                     cublaslt::Heuristic* results, int* found) {
    ++TheState().heuristics;
    return TheState().real->get_heuristic(handle, matmul, a, b, c, d, preference, requested,
                                          results, found);
  }

  static cublaslt::Code Matmul(cublaslt::Handle handle, cublaslt::Descriptor matmul,
                               const void* alpha, const void* a, cublaslt::Descriptor a_layout,
                               const void* b, cublaslt::Descriptor b_layout, const void* beta,
                               const void* c, cublaslt::Descriptor c_layout, void* d,
                               cublaslt::Descriptor d_layout, const cublaslt::Algorithm* algorithm,
                               void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    if (TheState().to_fail > 0) {
      --TheState().to_fail;
      if (TheState().fault == Fault::kBadAlloc) throw std::bad_alloc();
      return kFailure;
    }
    return TheState().real->matmul(handle, matmul, alpha, a, a_layout, b, b_layout, beta, c,
                                   c_layout, d, d_layout, algorithm, workspace, workspace_bytes,
                                   stream);
  }

  std::shared_ptr<const CublasLt> wrapped_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_FAULTY_CUBLAS_LT_H_
