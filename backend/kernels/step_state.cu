#include "backend/kernels/device_math.cuh"
#include "backend/kernels/operand_layout.h"
#include "backend/kernels/step_state.h"

namespace seq2seq::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void BindSlotsKernel(const BindUpload* uploads, const int32_t* words,
                                SlotTables tables) {
  const BindUpload& upload = uploads[blockIdx.x];
  const int64_t slot = upload.slot;
  const int32_t* list = words + upload.first_word;
  const auto copy = [&list](int32_t* destination, int32_t count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) destination[i] = list[i];
    list += count;
  };
  copy(tables.pending + slot * tables.pending_stride, upload.state.pending_count);
  copy(tables.self_blocks + slot * tables.self_stride, upload.self_count);
  copy(tables.cross_blocks + slot * tables.cross_stride, upload.cross_count);
  if (threadIdx.x == 0) tables.states[slot] = upload.state;
}

// The row's part in this pass, and the token that it feeds.
__device__ RowInfo DescribeRow(const BeginPassArgs& args, int32_t row, int32_t* token) {
  const StepHeader& header = *args.header;
  RowInfo info;
  info.slot = 0;
  *token = 0;
  if (row >= header.rows) return info;
  const int32_t slot = args.row_slots[row];
  const SlotState& state = args.tables.states[slot];
  const int32_t pending = state.pending_count;
  const int32_t index = header.pass - (header.passes - max(pending, 1));
  info.slot = slot;
  info.source_length = state.source_length;
  if (index < 0 || state.ended != 0) return info;
  info.position = state.position + index;
  info.flags = RowInfo::kActive;
  if (header.pass == header.passes - 1) {
    info.flags |= RowInfo::kChoose;
    if (state.generated < state.min_new_tokens) info.flags |= RowInfo::kBanEos;
    if (state.do_sample != 0) info.flags |= RowInfo::kSample;
  }
  *token = pending > 0 ? args.tables.pending[int64_t{slot} * args.tables.pending_stride + index]
                       : state.next_token;
  return info;
}

// No dependent kernel may start before this one ends: what comes later reads `rows` early.
template <typename T>
__global__ void __launch_bounds__(kThreads) BeginPassKernel(BeginPassArgs args) {
  __shared__ float warp_sums[kThreads / 32];
  __shared__ int32_t shared_token;
  const int row = blockIdx.x;
  if (threadIdx.x == 0) args.rows[row] = DescribeRow(args, row, &shared_token);
  // No block reads `ring` of the header but this one.
  if (row == 0 && threadIdx.x == 0 && args.header->pass == args.header->passes - 1) {
    *args.ring = args.header->ring;
    args.header->ring = (args.header->ring + 1) % args.header->ring_size;
  }
  __syncthreads();
  const int width = args.residual.width;
  const T* embedding = static_cast<const T*>(args.embedding) + int64_t{shared_token} * width;
  float sum = 0.0F;
  for (int k = threadIdx.x; k < width; k += kThreads) {
    const float x = ToFloat(embedding[k]);
    args.residual.values[int64_t{row} * width + k] = x;
    sum += x * x;
  }
  sum = WarpSum(sum);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0.0F;
  for (const float part : warp_sums) total += part;
  const float scale = rsqrtf(total / static_cast<float>(width) + args.epsilon);
  if (threadIdx.x == 0) {
    *reinterpret_cast<float4*>(args.residual.sum_squares +
                               int64_t{row} * args.residual.sum_stride) =
        make_float4(total, 0.0F, 0.0F, 0.0F);
    args.norm_scale[row] = scale;
  }
  T* scaled = static_cast<T*>(args.residual.scaled);
  for (int k = threadIdx.x; k < width; k += kThreads) {
    const float x = ToFloat(embedding[k]) * args.norm_weight[k] * scale;
    scaled[BlockedPlace<sizeof(T)>(row, k, args.residual.row_capacity)] = FromFloat<T>(x);
  }
}

}  // namespace

cudaError_t LaunchBindSlots(const BindUpload* uploads, const int32_t* words, int32_t count,
                            const SlotTables& tables, const LaunchContext& context) {
  if (count == 0) return cudaSuccess;
  return Launch(BindSlotsKernel, {dim3(count), dim3(kThreads)}, context, uploads, words, tables);
}

cudaError_t LaunchBeginPass(ElementType type, const BeginPassArgs& args, int32_t bucket,
                            const LaunchContext& context) {
  const LaunchShape shape{dim3(bucket), dim3(kThreads)};
  switch (type) {
    case ElementType::kFloat32:
      return Launch(BeginPassKernel<float>, shape, context, args);
    case ElementType::kFloat16:
      return Launch(BeginPassKernel<__half>, shape, context, args);
    case ElementType::kBfloat16:
      return Launch(BeginPassKernel<__nv_bfloat16>, shape, context, args);
  }
  return cudaErrorInvalidValue;
}

}  // namespace seq2seq::kernels
