#include "backend/kernels/projection_warpgroup.cuh"

#include <algorithm>

#include "backend/kernels/hopper.cuh"
#include "backend/kernels/measured_device.h"
#include "backend/kernels/projection_kernels.h"
#include "backend/kernels/projection_parts.cuh"
#include "backend/kernels/tensor_map.h"

namespace seq2seq::kernels {
namespace {

constexpr uint32_t kGroupElements = 8 * kChunkInputs;  // of 8 outputs or rows, which are contiguous
constexpr uint64_t kGroupBytes = uint64_t{8} * kChunkBytes;

// A description of the weights by which a copy takes a stage's chunks of a block's tiles.
template <typename Tile>
cudaError_t EncodeWeights(const ProjectionArgs& args, CUtensorMap* map) {
  const auto tiles = static_cast<uint64_t>(TileCount(args.outputs));
  const auto chunks = static_cast<uint64_t>(ChunkCount(args.inputs));
  return EncodeTensorMap({.data = args.weights,
                          .rank = 4,
                          .sizes = {kGroupElements, 2, tiles, chunks},
                          .strides = {kGroupBytes, chunks * 2 * kGroupBytes, 2 * kGroupBytes},
                          .box = {kGroupElements, 2, Tile::kTiles, kStageChunks}},
                         map);
}

// The same for the rows of a block.
template <typename Tile>
cudaError_t EncodeInputs(const ProjectionArgs& args, CUtensorMap* map) {
  const auto groups = static_cast<uint64_t>(args.row_capacity / 8);
  const auto chunks = static_cast<uint64_t>(ChunkCount(args.inputs));
  return EncodeTensorMap({.data = args.input,
                          .rank = 3,
                          .sizes = {kGroupElements, groups, chunks},
                          .strides = {kGroupBytes, groups * kGroupBytes},
                          .box = {kGroupElements, Tile::kRowTiles, kStageChunks}},
                         map);
}

template <typename T, int kGroups, int kRows>
cudaError_t LaunchTyped(const ProjectionArgs& args, const WarpgroupPlan& plan,
                        const LaunchContext& context) {
  using Tile = WarpgroupTile<kGroups, kRows>;
  CUtensorMap weights;
  CUtensorMap inputs;
  cudaError_t error = EncodeWeights<Tile>(args, &weights);
  if (error == cudaSuccess) error = EncodeInputs<Tile>(args, &inputs);
  if (error != cudaSuccess) return error;
  LaunchShape shape;
  shape.grid = dim3((TileCount(args.outputs) + Tile::kTiles - 1) / Tile::kTiles,
                    (args.rows + kRows - 1) / kRows, plan.splits);
  shape.block = dim3(Tile::kThreads);
  shape.cluster_z = plan.splits;
  shape.shared_bytes = Tile::SharedBytes(plan);
  return WithOutput(args.output, [&](auto output) {
    return LaunchWithShared(WarpgroupKernel<T, kGroups, kRows, decltype(output)::value>, shape,
                            context, args, weights, inputs, plan);
  });
}

constexpr int kMaxSplits = 4;
// Shared memory for a block's stages and sums, by how many blocks a multiprocessor is to hold.
constexpr int kBlockShared[] = {220 << 10, 110 << 10, 73 << 10};

// `total`: blocks that the inputs are split for, if there would be fewer; measured on an H200.
template <typename T, int kGroups, int kRows>
cudaError_t LaunchPlanned(const ProjectionArgs& args, int total, int most_resident,
                          const LaunchContext& context) {
  using Tile = WarpgroupTile<kGroups, kRows>;
  const int blocks = (TileCount(args.outputs) + Tile::kTiles - 1) / Tile::kTiles *
                     ((args.rows + kRows - 1) / kRows);
  const int stages = (ChunkCount(args.inputs) + kStageChunks - 1) / kStageChunks;
  WarpgroupPlan plan{};
  plan.splits = std::clamp(total / blocks, 1, std::min({args.max_splits, stages, kMaxSplits}));
  const int resident =
      std::clamp((blocks * plan.splits - 1) / kMultiprocessors + 1, 1, most_resident);
  const int shared = kBlockShared[resident - 1];
  const int sums = Tile::SumBytes(plan.splits);
  plan.own_sums = sums <= shared / 3;
  const int room = (shared - (plan.own_sums ? sums : 0)) / Tile::kStageBytes;
  plan.stages = std::clamp((stages + plan.splits - 1) / plan.splits, 2, std::min(room, kMaxStages));
  return LaunchTyped<T, kGroups, kRows>(args, plan, context);
}

// What was fastest on an H200 for a model of width 1536.
template <typename T>
cudaError_t LaunchHalf(const ProjectionArgs& args, const LaunchContext& context) {
  constexpr int kManyOutputs = 3072;
  constexpr int kVocabularyOutputs = 16384;
  const bool head = args.outputs >= kVocabularyOutputs;
  if (head && args.rows > 192) return LaunchPlanned<T, 2, 256>(args, 1, 1, context);
  if (args.rows > 192) return LaunchPlanned<T, 2, 128>(args, 216, 2, context);
  if (head || args.rows > 128) return LaunchPlanned<T, 2, 64>(args, kMultiprocessors, 2, context);
  if (args.rows > 64 && args.outputs >= kManyOutputs) {
    return LaunchPlanned<T, 2, 64>(args, 2 * kMultiprocessors, 2, context);
  }
  return LaunchPlanned<T, 1, 64>(args, 2 * kMultiprocessors, 3, context);
}

}  // namespace

cudaError_t LaunchWarpgroupProjection(ElementType type, const ProjectionArgs& args,
                                      const LaunchContext& context) {
  return type == ElementType::kFloat16 ? LaunchHalf<__half>(args, context)
                                       : LaunchHalf<__nv_bfloat16>(args, context);
}

}  // namespace seq2seq::kernels
