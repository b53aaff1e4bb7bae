#include "backend/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <string>

#include "backend/core/format.h"

namespace seq2seq {
namespace {

constexpr const char* kPlaces[] = {
    "libcublasLt.so.13",
    "/usr/local/cuda/lib64/libcublasLt.so.13",
    "/usr/local/cuda/targets/x86_64-linux/lib/libcublasLt.so.13",
    "/usr/local/cuda-13/lib64/libcublasLt.so.13",
    "/usr/local/cuda-13.0/targets/x86_64-linux/lib/libcublasLt.so.13",
    "libcublasLt.so.12",
    "/usr/local/cuda/lib64/libcublasLt.so.12",
    "/usr/local/cuda-12/lib64/libcublasLt.so.12",
};

}  // namespace

CublasLt::~CublasLt() {
  if (library_ != nullptr) dlclose(library_);
}

Result<std::shared_ptr<const CublasLt>> CublasLt::Load() { return Load(kPlaces); }

Result<std::shared_ptr<const CublasLt>> CublasLt::Load(std::span<const char* const> places) {
  std::string reasons;
  for (const char* place : places) {
    std::shared_ptr<CublasLt> lt(new CublasLt());
    lt->library_ = dlopen(place, RTLD_NOW | RTLD_LOCAL);
    if (lt->library_ == nullptr) {
      const char* reason = dlerror();
      reasons += Format("; {}", reason == nullptr ? place : reason);
      continue;
    }
    const Status resolved = lt->Resolve(place);
    if (resolved) return std::shared_ptr<const CublasLt>(std::move(lt));
    reasons += "; " + resolved.error().message;
  }
  return Unsupported(
      "the CUDA engine needs cuBLASLt (libcublasLt.so.13 or .12), and none could be used" +
      reasons);
}

Status CublasLt::Resolve(const char* path) {
  const char* missing = nullptr;
  const auto resolve = [&](auto* function, const char* name) {
    void* symbol = dlsym(library_, name);
    if (symbol == nullptr) missing = name;
    *reinterpret_cast<void**>(function) = symbol;
  };
  resolve(&create, "cublasLtCreate");
  resolve(&destroy, "cublasLtDestroy");
  resolve(&matmul_desc_create, "cublasLtMatmulDescCreate");
  resolve(&matmul_desc_destroy, "cublasLtMatmulDescDestroy");
  resolve(&matmul_desc_set_attribute, "cublasLtMatmulDescSetAttribute");
  resolve(&layout_create, "cublasLtMatrixLayoutCreate");
  resolve(&layout_destroy, "cublasLtMatrixLayoutDestroy");
  resolve(&preference_create, "cublasLtMatmulPreferenceCreate");
  resolve(&preference_destroy, "cublasLtMatmulPreferenceDestroy");
  resolve(&preference_set_attribute, "cublasLtMatmulPreferenceSetAttribute");
  resolve(&get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  resolve(&algorithm_check, "cublasLtMatmulAlgoCheck");
  resolve(&matmul, "cublasLtMatmul");
  if (missing == nullptr) return OkStatus();
  return Unsupported(Format("{} has no function {}", path, missing));
}

}  // namespace seq2seq
