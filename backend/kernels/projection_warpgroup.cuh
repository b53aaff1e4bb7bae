// The projection kernel of Hopper's matrix units. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_PROJECTION_WARPGROUP_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_PROJECTION_WARPGROUP_CUH_

#include "backend/kernels/cluster.cuh"
#include "backend/kernels/hopper.cuh"
#include "backend/kernels/projection_epilogue.cuh"
#include "backend/kernels/wgmma.cuh"

namespace seq2seq::kernels {

constexpr int kGroupThreads = 128;  // of a warpgroup
constexpr int kGroupOutputs = 64;
// Chunks of inputs that a stage of the pipeline holds, and stages that a block may have.
constexpr int kStageChunks = 2;
constexpr int kMaxStages = 16;
constexpr int kSharedAlignment = 1024;
constexpr int kChunkBytes = 64;  // of an output or a row, in a half type

struct WarpgroupPlan {
  int splits;     // blocks of the cluster that shares an output's inputs
  int stages;     // of the pipeline
  bool own_sums;  // sums have shared memory that no stage uses
};

// 64 * kGroups outputs of up to kRows rows, over one cluster block's share of the inputs. A warp
// of its own starts the copies; each warpgroup multiplies 64 outputs.
template <int kGroups, int kRows>
struct WarpgroupTile {
  static constexpr int kOutputs = kGroups * kGroupOutputs;
  static constexpr int kTiles = kOutputs / kTileOutputs;  // as many as warps that multiply
  static constexpr int kRowTiles = kRows / 8;
  static constexpr int kMultipliers = kGroups * kGroupThreads;
  // Two more warps: one starts the copies, one looks the rows up.
  static constexpr int kThreads = kMultipliers + 64;
  static constexpr int kWeightBytes = kStageChunks * kOutputs * kChunkBytes;
  static constexpr int kInputBytes = kStageChunks * kRows * kChunkBytes;
  static constexpr int kStageBytes = kWeightBytes + kInputBytes;
  static constexpr int kSumTileBytes = 32 * sizeof(float4);  // of 16 outputs x 8 rows

  // A block finishes row tiles FirstRowTile(rank) to FirstRowTile(rank + 1).
  __host__ __device__ static constexpr int FirstRowTile(int rank, int splits) {
    return (rank * kRowTiles + splits - 1) / splits;
  }
  __device__ static constexpr int OwnerOf(int row_tile, int splits) {
    return row_tile * splits / kRowTiles;
  }
  __host__ __device__ static constexpr int MaxOwnRowTiles(int splits) {
    return (kRowTiles + splits - 1) / splits;
  }
  static constexpr int SharedBytes(const WarpgroupPlan& plan) {
    const int stages = plan.stages * kStageBytes;
    const int sums = SumBytes(plan.splits);
    return kSharedAlignment + (plan.own_sums ? stages + sums : stages > sums ? stages : sums);
  }
  __host__ __device__ static constexpr int SumBytes(int splits) {
    return splits * MaxOwnRowTiles(splits) * kTiles * kSumTileBytes;
  }
};

// The sums of a warpgroup's 64 outputs x kRows rows: 4 a row tile and lane.
template <int kRows>
struct WarpgroupSums {
  static constexpr int kPairs = kRows / 128;  // of 64 rows
  static constexpr bool kOdd = kRows % 128 != 0;

  template <typename T>
  __device__ __forceinline__ void Add(uint64_t weights, uint32_t inputs) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      MultiplyAsync<T>(pairs[i], weights, MatrixOperand(inputs + i * 128 * kChunkBytes));
    }
    if constexpr (kOdd) {
      MultiplyAsync<T>(odd, weights, MatrixOperand(inputs + kPairs * 128 * kChunkBytes));
    }
  }
  __device__ __forceinline__ float4 Of(int row_tile) const {
    const float* d = row_tile / 16 < kPairs ? pairs[row_tile / 16] + row_tile % 16 * 4
                                            : odd + (row_tile - kPairs * 16) * 4;
    return make_float4(d[0], d[1], d[2], d[3]);
  }

  float pairs[kPairs == 0 ? 1 : kPairs][64] = {};
  float odd[32] = {};
};

template <typename T, int kGroups, int kRows, ProjectionOutput kOutput>
class WarpgroupBlock {
 public:
  using Tile = WarpgroupTile<kGroups, kRows>;
  using Row = EpilogueRow<kOutput>;
  // Row tiles whose old values are read at a time.
  static constexpr int kAtOnce = kOutput == ProjectionOutput::kResidual ? 4 : 1;
  using Old = float[kAtOnce][2][2];
  // Whether there are registers to read the first old values while products are computed.
  static constexpr bool kFetchesEarly = kRows == 64;

  struct Shared {
    alignas(8) uint64_t full[kMaxStages];
    uint64_t empty[kMaxStages];
    Arrivals sums;  // of all blocks of the cluster, if there is more than one
    float factors[kRows];
    Row rows[kRows];
  };

  __device__ WarpgroupBlock(const ProjectionArgs& args, const WarpgroupPlan& plan, Shared* shared,
                            unsigned char* dynamic)
      : args_(args),
        plan_(plan),
        shared_(*shared),
        stages_(dynamic),
        sums_(dynamic + (plan.own_sums ? plan.stages * Tile::kStageBytes : 0)),
        rank_(blockIdx.z),
        block_row_(blockIdx.y * kRows) {
    const int all = (ChunkCount(args.inputs) + kStageChunks - 1) / kStageChunks;
    begin_ = all * rank_ / plan.splits;
    count_ = all * (rank_ + 1) / plan.splits - begin_;
    first_row_tile_ = Tile::FirstRowTile(rank_, plan.splits);
    own_row_tiles_ = Tile::FirstRowTile(rank_ + 1, plan.splits) - first_row_tile_;
  }

  // One thread.
  __device__ __forceinline__ void InitBarriers() {
    for (int s = 0; s < plan_.stages; ++s) {
      InitBarrier(&shared_.full[s], 1);
      InitBarrier(&shared_.empty[s], Tile::kTiles);
    }
    if (plan_.splits > 1) {
      shared_.sums.Expect(plan_.splits * own_row_tiles_ * Tile::kTiles * Tile::kSumTileBytes);
    }
    FenceAsyncProxy();
  }

  // One thread: weights for the whole pipeline at once, inputs after the wait.
  __device__ __forceinline__ void StartWeights(const CUtensorMap& weights) {
    for (int s = 0; s < min(plan_.stages, count_); ++s) CopyWeights(weights, s, s);
  }
  __device__ __forceinline__ void Copy(const CUtensorMap& weights, const CUtensorMap& inputs) {
    for (int s = 0; s < min(plan_.stages, count_); ++s) CopyInputs(inputs, s, s);
    int place = 0;
    uint32_t phase = 0;
    for (int s = plan_.stages; s < count_; ++s) {
      WaitForPhase(&shared_.empty[place], phase);
      CopyWeights(weights, s, place);
      CopyInputs(inputs, s, place);
      if (++place == plan_.stages) {
        place = 0;
        phase ^= 1;
      }
    }
  }

  // What the results of the block's own rows need to know of them is looked up by the spare warp if
  // they are few, else by the warps that multiply, before they do.
  __device__ __forceinline__ bool spare_looks_up() const { return own_row_tiles_ <= 4; }
  // By a thread a row at a time; of `threads`, this is `thread`.
  __device__ __forceinline__ void PrepareRows(int thread, int threads) {
    for (int r = thread; r < own_row_tiles_ * 8; r += threads) {
      shared_.rows[r].Prepare(args_, min(OwnRow(r), args_.rows - 1));
    }
  }
  __device__ __forceinline__ void FetchRows(int thread, int threads) {
    for (int r = thread; r < own_row_tiles_ * 8; r += threads) {
      shared_.rows[r].Fetch(args_, min(OwnRow(r), args_.rows - 1));
    }
    constexpr int kAtOnce = 16;
    for (int first = thread / 32 * kAtOnce; first < own_row_tiles_ * 8;
         first += threads / 32 * kAtOnce) {
      FetchFactors<kAtOnce>(first);
    }
  }

  // The rest is done by the threads that multiply.

  __device__ __forceinline__ void FetchOld(const EpilogueOutputs<T, kOutput>& outputs, int first,
                                           Old& old) const {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int row = OwnRow((first + i) * 8 + threadIdx.x % 4 * 2 + k);
        outputs.FetchOld(min(row, args_.rows - 1), old[i][k]);
      }
    }
  }

  __device__ __forceinline__ void Multiply() {
    WarpgroupSums<kRows> sums;
    int place = 0;
    uint32_t phase = 0;
    const uint32_t base = SharedAddress(stages_);
    const uint32_t group_offset = threadIdx.x / kGroupThreads * (kGroupOutputs * kChunkBytes);
#pragma unroll 1
    for (int s = 0; s < count_; ++s) {
      WaitForPhase(&shared_.full[place], phase);
      const uint32_t weights = base + place * Tile::kStageBytes + group_offset;
      const uint32_t inputs = base + place * Tile::kStageBytes + Tile::kWeightBytes;
      BeginProducts();
#pragma unroll
      for (int i = 0; i < kStageChunks * 2; ++i) {
        const int half = i % 2 * 32;
        sums.template Add<T>(MatrixOperand(weights + i / 2 * (Tile::kOutputs * kChunkBytes) + half),
                             inputs + i / 2 * (kRows * kChunkBytes) + half);
      }
      CommitProducts();
      WaitForProducts<1>();  // those of the stage before
      if (s > 0 && threadIdx.x % 32 == 0) {
        Arrive(&shared_.empty[place == 0 ? plan_.stages - 1 : place - 1]);
      }
      if (++place == plan_.stages) {
        place = 0;
        phase ^= 1;
      }
    }
    WaitForProducts<0>();
    if (plan_.splits > 1) {
      if (!plan_.own_sums) MeetClusterInOrder();
      AwaitCluster();
    } else if (!plan_.own_sums) {
      SynchronizeMultipliers();
    }
    Share(sums);
  }

  __device__ __forceinline__ void SynchronizeMultipliers() {
    asm volatile("bar.sync 1, %0;" ::"n"(Tile::kMultipliers) : "memory");
  }

  // Hands on the row tiles that are this block's. `old`: what FetchOld() brought of the first ones.
  __device__ __forceinline__ void Finish(EpilogueOutputs<T, kOutput>& outputs, Old& old) {
    const int lane = threadIdx.x % 32;
    if constexpr (!kFetchesEarly) FetchOld(outputs, 0, old);
    __syncthreads();  // for what was looked up
    if (plan_.splits > 1) shared_.sums.Wait();
#pragma unroll 1
    for (int first = 0; first < own_row_tiles_; first += kAtOnce) {
      if (first > 0) FetchOld(outputs, first, old);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= own_row_tiles_) break;
        float4 sum = *SumPlace(0, first + i);
        for (int rank = 1; rank < plan_.splits; ++rank) {
          const float4 more = *SumPlace(rank, first + i);
          sum.x += more.x;
          sum.y += more.y;
          sum.z += more.z;
          sum.w += more.w;
        }
        const int r = (first + i) * 8 + lane % 4 * 2;
        const float pairs[2][2] = {{sum.x, sum.z}, {sum.y, sum.w}};
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int row = OwnRow(r + k);
          outputs.Store(min(row, args_.rows - 1), row < args_.rows, shared_.rows[r + k], old[i][k],
                        pairs[k], shared_.factors[r + k]);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ unsigned char* StagePlace(int place) const {
    return stages_ + place * Tile::kStageBytes;
  }
  __device__ __forceinline__ void CopyWeights(const CUtensorMap& map, int s, int place) {
    ArriveExpecting(&shared_.full[place], Tile::kStageBytes);
    CopyBox(StagePlace(place), map, &shared_.full[place], 0, 0, blockIdx.x * Tile::kTiles,
            (begin_ + s) * kStageChunks);
  }
  __device__ __forceinline__ void CopyInputs(const CUtensorMap& map, int s, int place) {
    CopyBox(StagePlace(place) + Tile::kWeightBytes, map, &shared_.full[place], 0, block_row_ / 8,
            (begin_ + s) * kStageChunks);
  }

  // Row r of those that this block finishes.
  __device__ __forceinline__ int OwnRow(int r) const {
    return block_row_ + first_row_tile_ * 8 + r;
  }

  // RMSNorm's factor and the output scale of rows first, first + 1, ...
  template <int kAtOnce>
  __device__ __forceinline__ void FetchFactors(int first) {
    const RowFactor& factor = args_.factor;
    const int lane = threadIdx.x % 32;
    const bool own = lane < kAtOnce && first + lane < own_row_tiles_ * 8;
    if (factor.sum_squares == nullptr) {
      if (own) shared_.factors[first + lane] = factor.output_scale;
      return;
    }
    const int row = min(OwnRow(first + lane % kAtOnce), args_.rows - 1);
    const float scale_in = LoadFresh(factor.scale_in + row);
    float sums[kAtOnce] = {};
    for (int part = lane; part < (factor.parts + 3) / 4; part += 32) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int of = min(OwnRow(first + i), args_.rows - 1);
        const float4 four = LoadFresh(
            reinterpret_cast<const float4*>(factor.sum_squares + int64_t{of} * factor.sum_stride) +
            part);
        sums[i] += four.x + four.y + four.z + four.w;
      }
    }
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float row_sum = WarpSum(sums[i]);
      if (lane == i) sum = row_sum;
    }
    const float scale = rsqrtf(sum * factor.inverse_width + factor.epsilon);
    if (!own) return;
    shared_.factors[first + lane] = factor.output_scale * __fdividef(scale, scale_in);
    if (blockIdx.x == 0 && OwnRow(first + lane) < args_.rows) factor.scale_out[row] = scale;
  }

  // Where block `rank`'s sums of one of this block's row tiles are.
  __device__ __forceinline__ float4* SumPlace(int rank, int own_row_tile) const {
    const int warp = threadIdx.x / 32;
    return reinterpret_cast<float4*>(sums_) +
           ((rank * Tile::MaxOwnRowTiles(plan_.splits) + own_row_tile) * Tile::kTiles + warp) * 32 +
           threadIdx.x % 32;
  }

  // Gives each block the sums of its row tiles.
  __device__ __forceinline__ void Share(const WarpgroupSums<kRows>& sums) {
    if (plan_.splits == 1) {
#pragma unroll
      for (int i = 0; i < Tile::kRowTiles; ++i) *SumPlace(0, i) = sums.Of(i);
      return;
    }
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
      const int owner = Tile::OwnerOf(i, plan_.splits);
      const int place = i - Tile::FirstRowTile(owner, plan_.splits);
      RemoteStore(&shared_.sums, owner).Store(SumPlace(rank_, place), sums.Of(i));
    }
  }

  const ProjectionArgs& args_;
  const WarpgroupPlan& plan_;
  Shared& shared_;
  unsigned char* stages_;
  unsigned char* sums_;
  int rank_;
  int block_row_;
  int begin_;  // stages' worth of inputs
  int count_;
  int first_row_tile_;
  int own_row_tiles_;
};

template <typename T, int kGroups, int kRows, ProjectionOutput kOutput>
__global__ void __launch_bounds__(WarpgroupTile<kGroups, kRows>::kThreads, kRows <= 128 ? 2 : 1)
    WarpgroupKernel(const __grid_constant__ ProjectionArgs args,
                    const __grid_constant__ CUtensorMap weights,
                    const __grid_constant__ CUtensorMap inputs,
                    const __grid_constant__ WarpgroupPlan plan) {
  using Block = WarpgroupBlock<T, kGroups, kRows, kOutput>;
  using Tile = typename Block::Tile;
  extern __shared__ unsigned char unaligned[];
  __shared__ typename Block::Shared shared;
  AllowNextKernel();
  unsigned char* dynamic = unaligned + (0U - SharedAddress(unaligned)) % kSharedAlignment;
  Block block(args, plan, &shared, dynamic);
  const int warp = threadIdx.x / 32;
  const bool copies = threadIdx.x == Tile::kMultipliers;
  if (copies) {
    PrefetchTensorMap(weights);
    PrefetchTensorMap(inputs);
    block.InitBarriers();
    block.StartWeights(weights);
  }
  __syncthreads();
  // Blocks meet when all of them run, or, if sums come to where stages were, when all have
  // multiplied.
  if (plan.splits > 1 && plan.own_sums) MeetCluster();
  const int lane = threadIdx.x % 32;
  if (warp >= Tile::kTiles) {
    const bool looks_up = warp > Tile::kTiles && block.spare_looks_up();
    if (looks_up) block.PrepareRows(lane, 32);
    WaitForEarlierKernels();
    if (copies) block.Copy(weights, inputs);
    if (looks_up) block.FetchRows(lane, 32);
    __syncwarp();
    if (plan.splits > 1) {
      if (!plan.own_sums) MeetClusterInOrder();
      AwaitCluster();
    }
    __syncthreads();
    return;
  }
  EpilogueOutputs<T, kOutput> outputs(args, blockIdx.x * Tile::kTiles + warp, lane / 4);
  outputs.Prepare();
  const bool looks_up = !block.spare_looks_up();
  if (looks_up) block.PrepareRows(threadIdx.x, Tile::kMultipliers);
  WaitForEarlierKernels();
  if (looks_up) block.FetchRows(threadIdx.x, Tile::kMultipliers);
  typename Block::Old old;
  if constexpr (Block::kFetchesEarly) block.FetchOld(outputs, 0, old);
  block.Multiply();
  block.Finish(outputs, old);
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_PROJECTION_WARPGROUP_CUH_
