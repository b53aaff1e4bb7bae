// What the projection kernels have in common. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_PROJECTION_PARTS_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_PROJECTION_PARTS_CUH_

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/operand_layout.h"
#include "backend/kernels/projection.h"
#include "backend/kernels/projection_epilogue.cuh"

namespace seq2seq::kernels {

// A chunk of weights, 16 outputs x 32 inputs, is 64 vectors for half types: lane g * 4 + t takes
// inputs 8 t .. 8 t + 7 of output g (first half) and of output g + 8 (second half). That is two
// mma.m16n8k16 A operands with the inputs permuted the same way as the B operands: lane g * 4 + t
// reads inputs 8 t .. 8 t + 7 of row g.
constexpr int kChunkVectors = 64;

// Numbers of threads, lanes, pairs and rows are not negative: division by a power of two is a
// shift if they are unsigned.
__device__ __forceinline__ int Quotient(uint32_t number, uint32_t divisor) {
  return static_cast<int>(number / divisor);
}
__device__ __forceinline__ int Rest(uint32_t number, uint32_t divisor) {
  return static_cast<int>(number % divisor);
}

// Which of the 32 vectors of 8 outputs or rows is that lane's.
__device__ __forceinline__ int OperandLane(uint32_t lane) {
  return Quotient(lane, 4) * 4 + VectorPlace(Quotient(lane, 4), Rest(lane, 4));
}

// RMSNorm's factor and the output scale for a block's rows, one warp a row at a time. The block has
// kWarps warps, 8 at least.
template <int kRowTiles, int kWarps>
class Factors {
 public:
  // publishes: of the blocks that compute a row's factor, one hands it on as scale_out.
  __device__ Factors(const ProjectionArgs& args, int first_row, bool publishes)
      : args_(args), first_row_(first_row), publishes_(publishes) {}
  __device__ Factors(const ProjectionArgs& args, int first_row)
      : Factors(args, first_row, blockIdx.x == 0) {}

  // Reads what earlier kernels wrote. Warps without a row read nothing: every block reads the same
  // few lines, which the cache serves one after the other.
  __device__ __forceinline__ void Fetch() {
    const RowFactor& factor = args_.factor;
    if (factor.sum_squares == nullptr) return;
    const int lane = threadIdx.x % 32;
    const int last = Quotient(factor.parts - 1, 4);
    float4 sums[kRowTiles][kReads] = {};
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int k = 0; k < kReads; ++k) {
        if (HasRow(i) && lane + k * 32 <= last) sums[i][k] = LoadFresh(Sums(i) + lane + k * 32);
      }
    }
    if (lane < kRowTiles && HasRow(lane)) scale_ = LoadFresh(factor.scale_in + Row(lane));
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int k = 0; k < kReads; ++k) {
        sums_[i] += sums[i][k].x + sums[i][k].y + sums[i][k].z + sums[i][k].w;
      }
    }
    if (last < kReads * 32) return;
#pragma unroll 1
    for (int part = lane + kReads * 32; part <= last; part += 32) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        if (!HasRow(i)) continue;
        const float4 more = LoadFresh(Sums(i) + part);
        sums_[i] += more.x + more.y + more.z + more.w;
      }
    }
  }

  // Sums what was read, without a branch: where products follow, they are computed meanwhile.
  __device__ __forceinline__ void Reduce() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) sums_[i] = WarpSum(sums_[i]);
  }

  // After Reduce(). Lane i finishes the warp's i-th row.
  __device__ __forceinline__ void Store(float* shared) const {
    const RowFactor& factor = args_.factor;
    const int lane = threadIdx.x % 32;
    float result = factor.output_scale;
    if (factor.sum_squares != nullptr) {
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        if (lane == i) sum = sums_[i];
      }
      const float scale = rsqrtf(sum * factor.inverse_width + factor.epsilon);
      result *= __fdividef(scale, scale_);
      if (publishes_ && lane < kRowTiles && HasRow(lane)) factor.scale_out[Row(lane)] = scale;
    }
    if (lane < kRowTiles && Local(lane) < kRowTiles * 8) shared[Local(lane)] = result;
  }

 private:
  // Vectors of four parts that a lane reads at once: few rows' up to a width of 4096.
  static constexpr int kReads = kRowTiles == 1 ? 2 : 1;

  __device__ __forceinline__ int Local(int i) const {
    return static_cast<int>(threadIdx.x / 32) + i * kWarps;
  }
  __device__ __forceinline__ int Row(int i) const { return first_row_ + Local(i); }
  __device__ __forceinline__ bool HasRow(int i) const {
    return Local(i) < kRowTiles * 8 && Row(i) < args_.rows;
  }
  __device__ __forceinline__ const float4* Sums(int i) const {
    return reinterpret_cast<const float4*>(args_.factor.sum_squares +
                                           int64_t{Row(i)} * args_.factor.sum_stride);
  }

  const ProjectionArgs& args_;
  int first_row_;
  bool publishes_;
  float sums_[kRowTiles] = {};
  float scale_ = 1.0F;  // lane i: of the warp's i-th row
};

// Pair p's row within the block.
__device__ __forceinline__ int LocalRow(uint32_t p) {
  return Quotient(p, 64) * 8 + Rest(p, 4) * 2 + Rest(p / 32, 2);
}

// Pair p of a tile's outputs; a warp's 32 pairs are the 32 lanes of an accumulator.
template <typename T, ProjectionOutput kOutput>
__device__ __forceinline__ Epilogue<T, kOutput> MakeEpilogue(const ProjectionArgs& args, int tile,
                                                             uint32_t p, int first_row) {
  return Epilogue<T, kOutput>(args, tile, Quotient(p % 32, 4), first_row + LocalRow(p));
}

// The sums of one output tile.
template <typename T, int kRowTiles>
struct Sums {
  // Two chains of sums where there is one row tile: a chain alone would wait for itself.
  static constexpr int kChains = kRowTiles == 1 ? 2 : 1;

  __device__ __forceinline__ void Add(const uint4& low, const uint4& high,
                                      const uint4 (&input)[kRowTiles]) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      MultiplyTile<T>(values[0][i], low.x, high.x, low.y, high.y, input[i].x, input[i].y);
      MultiplyTile<T>(values[kChains - 1][i], low.z, high.z, low.w, high.w, input[i].z, input[i].w);
    }
  }

  __device__ __forceinline__ void Add(const Sums& other) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int k = 0; k < 4; ++k) values[c][i][k] += other.values[c][i][k];
      }
    }
  }

  // The two sums of pair p become shared[p].
  __device__ __forceinline__ void Store(float2* shared) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      float total[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        total[k] = values[0][i][k] + (kChains == 2 ? values[kChains - 1][i][k] : 0.0F);
      }
      shared[i * 64 + lane] = make_float2(total[0], total[2]);
      shared[i * 64 + 32 + lane] = make_float2(total[1], total[3]);
    }
  }

  float values[kChains][kRowTiles][4] = {};
};

// Calls run(integral_constant of the kind of output).
template <typename Run>
cudaError_t WithOutput(ProjectionOutput output, Run run) {
  using enum ProjectionOutput;
  switch (output) {
    case kQueryKeyValue:
      return run(std::integral_constant<ProjectionOutput, kQueryKeyValue>{});
    case kResidual:
      return run(std::integral_constant<ProjectionOutput, kResidual>{});
    case kActivation:
      return run(std::integral_constant<ProjectionOutput, kActivation>{});
    case kGatedActivation:
      return run(std::integral_constant<ProjectionOutput, kGatedActivation>{});
    case kLogits:
      return run(std::integral_constant<ProjectionOutput, kLogits>{});
  }
  return cudaErrorInvalidValue;
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_PROJECTION_PARTS_CUH_
