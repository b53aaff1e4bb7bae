// The start of a pass for one row, one block a row. Device code only.
//
// Two kernels start rows: the one that begins a pass, and the one that ends a step, for a next step
// of the same rows. Both have kRowThreads threads a block, so that a row's sums are added in the
// same order, and its tokens don't depend on which of them started it.
#ifndef SEQ2SEQ_BACKEND_KERNELS_BEGIN_ROW_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_BEGIN_ROW_CUH_

#include <cstdint>

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/operand_layout.h"
#include "backend/kernels/step_state.h"

namespace seq2seq::kernels {

constexpr int kRowThreads = 512;
constexpr int kRowWarps = kRowThreads / 32;

// What a row does in a pass, and the token that it feeds.
struct RowStart {
  RowInfo info;
  int32_t token = 0;
};

// Of a slot's row in pass `pass` of `passes`. A slot that has ended, or whose pending tokens begin
// in a later pass, is idle.
__device__ __forceinline__ RowStart StartOf(int32_t slot, const SlotState& state, int32_t pass,
                                            int32_t passes, const SlotTables& tables) {
  const int32_t pending = state.pending_count;
  const int32_t index = pass - (passes - max(pending, 1));
  RowStart start;
  start.info.slot = slot;
  start.info.source_length = state.source_length;
  if (index < 0 || state.ended != 0) return start;
  start.info.position = state.position + index;
  start.info.flags = RowInfo::kActive;
  if (pass == passes - 1) {
    start.info.flags |= RowInfo::kChoose;
    if (state.generated < state.min_new_tokens) start.info.flags |= RowInfo::kBanEos;
    if (state.do_sample != 0) start.info.flags |= RowInfo::kSample;
  }
  start.token = pending > 0 ? tables.pending[int64_t{slot} * tables.pending_stride + index]
                            : state.next_token;
  return start;
}

// Starts a row's residual stream with its token's embedding, and norms it. All threads of the block
// call it together: Fetch(), Share(), a barrier, Store().
template <typename T>
class ResidualStart {
 public:
  // Reads what no kernel writes.
  __device__ __forceinline__ ResidualStart(const BeginPassArgs& args, int row)
      : args_(args), row_(row), width_(args.residual.width) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      weights_[i] = Place(i) < width_ ? args.norm_weight[Place(i)] : 0.0F;
    }
  }

  __device__ __forceinline__ void Fetch(int32_t token) {
    embedding_ = static_cast<const T*>(args_.embedding) + int64_t{token} * width_;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      values_[i] = Place(i) < width_ ? ToFloat(embedding_[Place(i)]) : 0.0F;
    }
  }

  __device__ __forceinline__ void Share(float (&warp_sums)[kRowWarps]) const {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kKept; ++i) sum = fmaf(values_[i], values_[i], sum);
    for (int k = Place(kKept); k < width_; k += kRowThreads) {
      const float value = ToFloat(embedding_[k]);
      sum = fmaf(value, value, sum);
    }
    sum = WarpSum(sum);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  }

  __device__ __forceinline__ void Store(const float (&warp_sums)[kRowWarps]) const {
    float total = 0.0F;
#pragma unroll
    for (int w = 0; w < kRowWarps; ++w) total += warp_sums[w];
    const float scale = rsqrtf(total / static_cast<float>(width_) + args_.epsilon);
    if (threadIdx.x == 0) {
      float* sums = args_.residual.sum_squares + int64_t{row_} * args_.residual.sum_stride;
      *reinterpret_cast<float4*>(sums) = make_float4(total, 0.0F, 0.0F, 0.0F);
      args_.norm_scale[row_] = scale;
    }
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (Place(i) < width_) Put(Place(i), values_[i], weights_[i] * scale);
    }
    for (int k = Place(kKept); k < width_; k += kRowThreads) {
      Put(k, ToFloat(embedding_[k]), args_.norm_weight[k] * scale);
    }
  }

 private:
  // A thread's values that stay in registers; those of wider rows are read again.
  static constexpr int kKept = 4;

  __device__ __forceinline__ static int Place(int i) {
    return static_cast<int>(threadIdx.x) + i * kRowThreads;
  }

  __device__ __forceinline__ void Put(int k, float value, float factor) const {
    args_.residual.values[int64_t{row_} * width_ + k] = value;
    static_cast<T*>(
        args_.residual.scaled)[BlockedPlace<sizeof(T)>(row_, k, args_.residual.row_capacity)] =
        FromFloat<T>(value * factor);
  }

  const BeginPassArgs& args_;
  int row_;
  int width_;
  const T* embedding_ = nullptr;
  float weights_[kKept];
  float values_[kKept];
};

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_BEGIN_ROW_CUH_
