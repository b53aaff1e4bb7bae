#include "backend/kernels/begin_row.cuh"
#include "backend/kernels/step_state.h"
#include "backend/kernels/with_element_type.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kBindThreads = 256;

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

template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    BeginPassKernel(const __grid_constant__ BeginPassArgs args) {
  __shared__ float warp_sums[kRowWarps];
  __shared__ int32_t shared_token;
  const int row = blockIdx.x;
  ResidualStart<T> residual(args, row);
  if (threadIdx.x == 0) {
    const StepHeader header = *args.header;
    RowStart start;
    if (row < header.rows) {
      const int32_t slot = args.row_slots[row];
      start = StartOf(slot, args.tables.states[slot], header.pass, header.passes, args.tables);
    }
    args.rows[row] = start.info;
    args.rings[row] = header.ring;
    shared_token = start.token;
  }
  __syncthreads();
  residual.Fetch(shared_token);
  residual.Share(warp_sums);
  __syncthreads();
  residual.Store(warp_sums);
}

}  // namespace

cudaError_t LaunchBindSlots(const BindUpload* uploads, const int32_t* words, int32_t count,
                            const SlotTables& tables, const LaunchContext& context) {
  if (count == 0) return cudaSuccess;
  return Launch(BindSlotsKernel, {dim3(count), dim3(kBindThreads)}, context, uploads, words,
                tables);
}

cudaError_t LaunchBeginPass(ElementType type, const BeginPassArgs& args, int32_t bucket,
                            const LaunchContext& context) {
  const LaunchShape shape{dim3(bucket), dim3(kRowThreads)};
  return WithElementType(type, [&](auto element) {
    return Launch(BeginPassKernel<decltype(element)>, shape, context, args);
  });
}

}  // namespace seq2seq::kernels
