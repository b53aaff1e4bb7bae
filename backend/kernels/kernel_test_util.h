// What the kernels' tests share: memory on the device, random inputs, comparisons with arithmetic
// in double. A failed CUDA call throws, which GoogleTest reports: nothing after it means anything.
//
// Suites whose name, test or instantiation holds "Large" have shapes that are too big to run under
// a sanitizer (tools/gpu_tests.py leaves them out there).
#ifndef SEQ2SEQ_BACKEND_KERNELS_KERNEL_TEST_UTIL_H_
#define SEQ2SEQ_BACKEND_KERNELS_KERNEL_TEST_UTIL_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/kernels/activation_kind.h"
#include "backend/kernels/element_type.h"

namespace seq2seq::kernels {

inline constexpr ElementType kElementTypes[] = {ElementType::kFloat32, ElementType::kFloat16,
                                                ElementType::kBfloat16};

inline void Check(bool good, const std::string& what) { EXPECT_TRUE(good) << what; }

inline void CheckCuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// ||actual - expected|| / ||expected||, NaN if anything is.
inline double RelativeError(const std::vector<double>& actual,
                            const std::vector<double>& expected) {
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / (norm > 0.0 ? norm : 1.0));
}

inline void CheckClose(const std::vector<double>& actual, const std::vector<double>& expected,
                       double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  EXPECT_LE(RelativeError(actual, expected), tolerance) << what;
}

inline const char* TypeName(ElementType type) {
  return type == ElementType::kFloat32   ? "float32"
         : type == ElementType::kFloat16 ? "float16"
                                         : "bfloat16";
}

// The name of a test's instance for a number format.
inline std::string TypeParamName(const testing::TestParamInfo<ElementType>& info) {
  return TypeName(info.param);
}

// Relative error that results in this format may have against exact arithmetic on the same inputs.
inline double Tolerance(ElementType type) {
  return type == ElementType::kFloat32 ? 1e-5 : type == ElementType::kFloat16 ? 2e-3 : 1e-2;
}

// Values on the device in some format, and what they are after rounding.
class DeviceValues {
 public:
  DeviceValues(ElementType type, std::vector<double> values) : type_(type) {
    CheckCuda(cudaMalloc(&data_, values.size() * ElementBytes(type) + 1), "cudaMalloc");
    Write(values);
  }
  ~DeviceValues() { static_cast<void>(cudaFree(data_)); }
  DeviceValues(const DeviceValues&) = delete;
  DeviceValues& operator=(const DeviceValues&) = delete;

  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  const std::vector<double>& rounded() const { return rounded_; }

  void Write(const std::vector<double>& values) {
    std::vector<unsigned char> bytes(values.size() * ElementBytes(type_));
    rounded_.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<float>(values[i]);
      if (type_ == ElementType::kFloat32) {
        std::memcpy(&bytes[4 * i], &value, 4);
        rounded_[i] = value;
      } else if (type_ == ElementType::kFloat16) {
        const __half half = __float2half_rn(value);
        std::memcpy(&bytes[2 * i], &half, 2);
        rounded_[i] = __half2float(half);
      } else {
        const __nv_bfloat16 half = __float2bfloat16_rn(value);
        std::memcpy(&bytes[2 * i], &half, 2);
        rounded_[i] = __bfloat162float(half);
      }
    }
    CheckCuda(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }

  std::vector<double> Read() const {
    std::vector<unsigned char> bytes(rounded_.size() * ElementBytes(type_));
    CheckCuda(cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::vector<double> values(rounded_.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (type_ == ElementType::kFloat32) {
        float value = 0.0F;
        std::memcpy(&value, &bytes[4 * i], 4);
        values[i] = value;
      } else if (type_ == ElementType::kFloat16) {
        __half half;
        std::memcpy(&half, &bytes[2 * i], 2);
        values[i] = __half2float(half);
      } else {
        __nv_bfloat16 half;
        std::memcpy(&half, &bytes[2 * i], 2);
        values[i] = __bfloat162float(half);
      }
    }
    return values;
  }

 private:
  ElementType type_;
  void* data_ = nullptr;
  std::vector<double> rounded_;
};

// Any trivially copyable records on the device.
template <typename T>
class DeviceRecords {
 public:
  explicit DeviceRecords(const std::vector<T>& records) : count_(records.size()) {
    CheckCuda(cudaMalloc(&data_, count_ * sizeof(T) + 1), "cudaMalloc");
    CheckCuda(cudaMemcpy(data_, records.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
              "cudaMemcpy");
  }
  ~DeviceRecords() { static_cast<void>(cudaFree(data_)); }
  DeviceRecords(const DeviceRecords&) = delete;
  DeviceRecords& operator=(const DeviceRecords&) = delete;

  T* data() const { return data_; }
  std::vector<T> Read() const {
    std::vector<T> records(count_);
    CheckCuda(cudaMemcpy(records.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              "cudaMemcpy");
    return records;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// The activation in double; formulas: Hendrycks and Gimpel 2016 (GELU), Elfwing et al. 2018 (SiLU).
inline double ExactActivation(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kGelu:
      return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kSilu:
      return x / (1.0 + std::exp(-x));
  }
  return NAN;
}

inline std::vector<double> RandomValues(size_t count, uint64_t seed, double scale = 1.0) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0.0, scale);
  std::vector<double> values(count);
  for (double& value : values) value = normal(engine);
  return values;
}

// What outputs hold before a kernel runs, so that one that is not written shows.
inline std::vector<double> Poison(size_t count) { return std::vector<double>(count, NAN); }

// Runs launch(stream) and waits for it.
template <typename Run>
void RunOnStream(Run launch) {
  cudaStream_t stream = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  CheckCuda(cudaDeviceSynchronize(), "earlier copies");
  CheckCuda(launch(stream), "launch");
  CheckCuda(cudaStreamSynchronize(stream), "kernel");
  CheckCuda(cudaStreamDestroy(stream), "stream");
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_KERNEL_TEST_UTIL_H_
