// cuBLASLt, loaded at run time: the library is 400 MB, so it is neither needed to build nor
// shipped.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUBLAS_LT_H_
#define SEQ2SEQ_BACKEND_CUDA_CUBLAS_LT_H_

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/core/status.h"

namespace seq2seq {

// The few calls of cuBLASLt's C interface that the engine makes, as its documentation describes
// them; the same in versions 12 and 13.
namespace cublaslt {

using Handle = void*;
using Descriptor = void*;  // of a product, a layout or a preference
using Code = int;          // cublasStatus_t; 0 is success

struct Algorithm {
  std::array<uint64_t, 8> data;
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  Code state;
  float waves;
  std::array<int, 4> reserved;
};

struct Calls {
  Code (*create)(Handle*) = nullptr;
  Code (*destroy)(Handle) = nullptr;
  Code (*matmul_desc_create)(Descriptor*, int compute_type, int scale_type) = nullptr;
  Code (*matmul_desc_destroy)(Descriptor) = nullptr;
  Code (*matmul_desc_set_attribute)(Descriptor, int attribute, const void* value,
                                    size_t bytes) = nullptr;
  Code (*layout_create)(Descriptor*, int type, uint64_t rows, uint64_t columns,
                        int64_t leading_dimension) = nullptr;
  Code (*layout_destroy)(Descriptor) = nullptr;
  Code (*preference_create)(Descriptor*) = nullptr;
  Code (*preference_destroy)(Descriptor) = nullptr;
  Code (*preference_set_attribute)(Descriptor, int attribute, const void* value,
                                   size_t bytes) = nullptr;
  Code (*get_heuristic)(Handle, Descriptor matmul, Descriptor a, Descriptor b, Descriptor c,
                        Descriptor d, Descriptor preference, int requested, Heuristic* results,
                        int* found) = nullptr;
  Code (*algorithm_check)(Handle, Descriptor matmul, Descriptor a, Descriptor b, Descriptor c,
                          Descriptor d, const Algorithm*, Heuristic* result) = nullptr;
  Code (*matmul)(Handle, Descriptor matmul, const void* alpha, const void* a, Descriptor a_layout,
                 const void* b, Descriptor b_layout, const void* beta, const void* c,
                 Descriptor c_layout, void* d, Descriptor d_layout, const Algorithm* algorithm,
                 void* workspace, size_t workspace_bytes, cudaStream_t stream) = nullptr;
};

}  // namespace cublaslt

// The library's functions. Immutable after loading; safe from any thread; the library stays loaded
// while this lives.
class CublasLt : public cublaslt::Calls {
 public:
  // Looks for libcublasLt.so.13, then .12, where the dynamic linker does and below /usr/local/cuda.
  [[nodiscard]] static Result<std::shared_ptr<const CublasLt>> Load();
  // The first of `places` that can be loaded and has every function. kUnsupported, with what is
  // wrong with each, if there is none.
  [[nodiscard]] static Result<std::shared_ptr<const CublasLt>> Load(
      std::span<const char* const> places);

  // Functions of the caller's, for tests of what happens when some fail.
  explicit CublasLt(const cublaslt::Calls& calls) : cublaslt::Calls(calls) {}
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

 private:
  CublasLt() = default;
  Status Resolve(const char* path);

  void* library_ = nullptr;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUBLAS_LT_H_
