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
#include <thread>
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

// Calls work(i) for i from 0 to count - 1 on all cores, in any order.
template <typename Work>
void ForEach(size_t count, const Work& work) {
  const size_t threads = std::min<size_t>(count, std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::jthread> workers;
  for (size_t first = 0; first < threads; ++first) {
    workers.emplace_back([&work, first, threads, count] {
      for (size_t i = first; i < count; i += threads) work(i);
    });
  }
}

// The same by blocks of values: work(block, first, end).
template <typename Work>
void ForBlocks(size_t count, const Work& work) {
  constexpr size_t kBlock = size_t{1} << 16;
  ForEach((count + kBlock - 1) / kBlock, [&](size_t block) {
    work(block, block * kBlock, std::min(count, (block + 1) * kBlock));
  });
}

// A value's bytes in a number format, and back.
template <typename T>
double StoreAs(float value, unsigned char* bytes) {
  const T stored(value);
  std::memcpy(bytes, &stored, sizeof(T));
  return static_cast<float>(stored);
}
template <typename T>
double LoadAs(const unsigned char* bytes) {
  T stored;
  std::memcpy(&stored, bytes, sizeof(T));
  return static_cast<float>(stored);
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
    const size_t size = ElementBytes(type_);
    std::vector<unsigned char> bytes(values.size() * size);
    rounded_.resize(values.size());
    const auto store = [&]<typename T>(T) {
      ForBlocks(values.size(), [&](size_t, size_t first, size_t end) {
        for (size_t i = first; i < end; ++i) {
          rounded_[i] = StoreAs<T>(static_cast<float>(values[i]), &bytes[i * size]);
        }
      });
    };
    WithType(store);
    CheckCuda(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }

  std::vector<double> Read() const {
    const size_t size = ElementBytes(type_);
    std::vector<unsigned char> bytes(rounded_.size() * size);
    CheckCuda(cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::vector<double> values(rounded_.size());
    const auto load = [&]<typename T>(T) {
      ForBlocks(values.size(), [&](size_t, size_t first, size_t end) {
        for (size_t i = first; i < end; ++i) values[i] = LoadAs<T>(&bytes[i * size]);
      });
    };
    WithType(load);
    return values;
  }

 private:
  // Calls work(T()) with the number format's type.
  template <typename Work>
  void WithType(const Work& work) const {
    switch (type_) {
      case ElementType::kFloat32:
        return work(float());
      case ElementType::kFloat16:
        return work(__half());
      case ElementType::kBfloat16:
        return work(__nv_bfloat16());
    }
  }

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

// Normal; the same on every machine.
inline std::vector<double> RandomValues(size_t count, uint64_t seed, double scale = 1.0) {
  std::vector<double> values(count);
  ForBlocks(count, [&](size_t block, size_t first, size_t end) {
    std::mt19937_64 engine(seed + 1'000'003 * block);
    std::normal_distribution<double> normal(0.0, scale);
    for (size_t i = first; i < end; ++i) values[i] = normal(engine);
  });
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
