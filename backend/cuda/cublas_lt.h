// cuBLASLt, loaded at run time: the library is 400 MB, so it is neither needed to build nor
// shipped.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUBLAS_LT_H_
#define SEQ2SEQ_BACKEND_CUDA_CUBLAS_LT_H_

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

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

}  // namespace cublaslt

// The library's functions. Immutable after loading; safe from any thread; the library stays loaded
// while this lives.
class CublasLt {
 public:
  // Looks for libcublasLt.so.13, then .12, where the dynamic linker does and below /usr/local/cuda.
  // kUnsupported if there is none, naming the places.
  [[nodiscard]] static Result<std::shared_ptr<const CublasLt>> Load();

  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  cublaslt::Code (*create)(cublaslt::Handle*) = nullptr;
  cublaslt::Code (*destroy)(cublaslt::Handle) = nullptr;
  cublaslt::Code (*matmul_desc_create)(cublaslt::Descriptor*, int compute_type,
                                       int scale_type) = nullptr;
  cublaslt::Code (*matmul_desc_destroy)(cublaslt::Descriptor) = nullptr;
  cublaslt::Code (*matmul_desc_set_attribute)(cublaslt::Descriptor, int attribute,
                                              const void* value, size_t bytes) = nullptr;
  cublaslt::Code (*layout_create)(cublaslt::Descriptor*, int type, uint64_t rows, uint64_t columns,
                                  int64_t leading_dimension) = nullptr;
  cublaslt::Code (*layout_destroy)(cublaslt::Descriptor) = nullptr;
  cublaslt::Code (*preference_create)(cublaslt::Descriptor*) = nullptr;
  cublaslt::Code (*preference_destroy)(cublaslt::Descriptor) = nullptr;
  cublaslt::Code (*preference_set_attribute)(cublaslt::Descriptor, int attribute, const void* value,
                                             size_t bytes) = nullptr;
  cublaslt::Code (*get_heuristic)(cublaslt::Handle, cublaslt::Descriptor matmul,
                                  cublaslt::Descriptor a, cublaslt::Descriptor b,
                                  cublaslt::Descriptor c, cublaslt::Descriptor d,
                                  cublaslt::Descriptor preference, int requested,
                                  cublaslt::Heuristic* results, int* found) = nullptr;
  cublaslt::Code (*algorithm_check)(cublaslt::Handle, cublaslt::Descriptor matmul,
                                    cublaslt::Descriptor a, cublaslt::Descriptor b,
                                    cublaslt::Descriptor c, cublaslt::Descriptor d,
                                    const cublaslt::Algorithm*,
                                    cublaslt::Heuristic* result) = nullptr;
  cublaslt::Code (*matmul)(cublaslt::Handle, cublaslt::Descriptor matmul, const void* alpha,
                           const void* a, cublaslt::Descriptor a_layout, const void* b,
                           cublaslt::Descriptor b_layout, const void* beta, const void* c,
                           cublaslt::Descriptor c_layout, void* d, cublaslt::Descriptor d_layout,
                           const cublaslt::Algorithm* algorithm, void* workspace,
                           size_t workspace_bytes, cudaStream_t stream) = nullptr;

 private:
  CublasLt() = default;
  Status Resolve(const char* path);

  void* library_ = nullptr;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUBLAS_LT_H_
