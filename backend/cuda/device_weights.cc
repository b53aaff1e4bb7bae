#include "backend/cuda/device_weights.h"

#include <algorithm>
#include <utility>

#include "backend/core/format.h"
#include "backend/cuda/cuda_status.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/position_bias.h"
#include "backend/kernels/convert.h"
#include "backend/kernels/projection.h"

namespace seq2seq {
namespace {

using kernels::ElementBytes;
using kernels::ElementType;

// What the model has that no kernel does, or null. RMSNorm is a part of the decoder's projections,
// and that is where T5 has it; LayerNorm is a kernel between them, which is the one that knows of
// tables of positions.
const char* UnsupportedNorms(const ModelSpec& spec) {
  const bool pre = spec.norm_placement == NormPlacement::kPre;
  const bool table = spec.positions == PositionKind::kTable;
  if (spec.norm == NormKind::kRms) {
    if (!pre) return "RMSNorm behind sub-layers";
    if (!spec.final_norm) return "RMSNorm without a final norm";
    if (table) return "RMSNorm with a table of positions";
    if (spec.embedding_norm) return "RMSNorm of embeddings";
    if (spec.embedding_scale != 1.0F) return "RMSNorm with scaled embeddings";
    return nullptr;
  }
  if (!table) return "LayerNorm with relative positions";
  if (pre && !spec.final_norm) return "LayerNorm before sub-layers without a final norm";
  if (!pre && spec.final_norm) return "LayerNorm behind sub-layers with a final norm";
  return nullptr;
}

const char* UnsupportedBiases(const Checkpoint& checkpoint) {
  const bool rms = checkpoint.spec().norm == NormKind::kRms;
  for (const StackWeights* stack : {&checkpoint.encoder(), &checkpoint.decoder()}) {
    if (rms && stack->final_norm.bias.present()) return "RMSNorm with a bias";
    for (const LayerWeights& layer : stack->layers) {
      if (rms && (layer.self_attention.norm.bias.present() ||
                  layer.cross_attention.norm.bias.present() || layer.ffn.norm.bias.present())) {
        return "RMSNorm with a bias";
      }
      if (layer.ffn.gate.bias.present() ||
          (layer.ffn.gate.weight.present() && layer.ffn.up.bias.present())) {
        return "biases of a gated feed-forward layer's inputs";
      }
    }
  }
  return nullptr;
}

Status CheckSupported(const Checkpoint& checkpoint, DType dtype) {
  const ModelSpec& spec = checkpoint.spec();
  for (const char* what : {UnsupportedNorms(spec), UnsupportedBiases(checkpoint)}) {
    if (what == nullptr) continue;
    return Unsupported(Format("the CUDA engine has no kernels for {}, which model type '{}' has",
                              what, spec.model_type));
  }
  const int32_t step = 16 / static_cast<int32_t>(DTypeBytes(dtype));
  const auto check = [&](const char* name, int32_t value) -> Status {
    if (value % step == 0) return OkStatus();
    return Unsupported(Format("the CUDA engine needs {} to be a multiple of {} in {}; it is {}",
                              name, step, DTypeName(dtype), value));
  };
  SEQ2SEQ_RETURN_IF_ERROR(check("d_model", spec.d_model));
  SEQ2SEQ_RETURN_IF_ERROR(check("d_kv", spec.head_dim));
  SEQ2SEQ_RETURN_IF_ERROR(check("d_ff of the encoder", spec.encoder.d_ff));
  SEQ2SEQ_RETURN_IF_ERROR(check("d_ff of the decoder", spec.decoder.d_ff));
  if (spec.head_dim > 128) {
    return Unsupported(Format("the CUDA engine takes d_kv up to 128; it is {}", spec.head_dim));
  }
  if (spec.encoder_inner() != spec.decoder_inner()) {
    return Unsupported("the CUDA engine needs as many heads in the encoder as in the decoder");
  }
  if (spec.relative_positions.max_distance > 4096) {
    return Unsupported(Format("relative_attention_max_distance is {}; at most 4096 are supported",
                              spec.relative_positions.max_distance));
  }
  return OkStatus();
}

// Brings tensors to the device one by one through a staging buffer, in stream order.
class Uploader {
 public:
  static Result<Uploader> Create(const Checkpoint& checkpoint, ElementType type) {
    Uploader uploader;
    uploader.type_ = type;
    SEQ2SEQ_ASSIGN_OR_RETURN(uploader.stream_, CudaStream::Create(StreamPriority::kLow));
    SEQ2SEQ_ASSIGN_OR_RETURN(uploader.staging_,
                             DeviceBuffer::Allocate(LargestTensorBytes(checkpoint)));
    return uploader;
  }

  Result<DeviceBuffer> Floats(const TensorView& tensor) {
    SEQ2SEQ_ASSIGN_OR_RETURN(DeviceBuffer buffer, Zeroed(tensor.elements() * sizeof(float)));
    SEQ2SEQ_RETURN_IF_ERROR(Convert(tensor, buffer.as(), ElementType::kFloat32));
    return buffer;
  }

  Result<NormOnDevice> Norm(const NormWeights& norm) {
    NormOnDevice out;
    if (norm.weight.present()) {
      SEQ2SEQ_ASSIGN_OR_RETURN(out.weight, Floats(norm.weight));
    }
    if (norm.bias.present()) {
      SEQ2SEQ_ASSIGN_OR_RETURN(out.bias, Floats(norm.bias));
    }
    return out;
  }

  Result<DeviceBuffer> HostFloats(const std::vector<float>& values) { return Values(values); }
  Result<DeviceBuffer> HostInts(const std::vector<int32_t>& values) { return Values(values); }

  // The matrices below each other, row-major; their biases in `bias_type`.
  Result<LinearOnDevice> RowMajor(const std::vector<const LinearWeights*>& parts,
                                  ElementType bias_type) {
    LinearOnDevice out;
    SEQ2SEQ_ASSIGN_OR_RETURN(out.weight, RowMajor(WeightsOf(parts)));
    SEQ2SEQ_ASSIGN_OR_RETURN(out.bias, Biases(parts, bias_type));
    return out;
  }
  Result<DeviceBuffer> RowMajor(const std::vector<const TensorView*>& tensors) {
    int64_t elements = 0;
    for (const TensorView* tensor : tensors) elements += tensor->elements();
    SEQ2SEQ_ASSIGN_OR_RETURN(DeviceBuffer buffer, Zeroed(elements * ElementBytes(type_)));
    int64_t offset = 0;
    for (const TensorView* tensor : tensors) {
      SEQ2SEQ_RETURN_IF_ERROR(
          Convert(*tensor, buffer.as<std::byte>() + offset * ElementBytes(type_), type_));
      offset += tensor->elements();
    }
    return buffer;
  }

  // The matrices below each other, packed; their biases in float.
  Result<LinearOnDevice> Packed(const std::vector<const LinearWeights*>& parts) {
    LinearOnDevice out;
    SEQ2SEQ_ASSIGN_OR_RETURN(out.weight, Pack(WeightsOf(parts), false));
    SEQ2SEQ_ASSIGN_OR_RETURN(out.bias, Biases(parts, ElementType::kFloat32));
    return out;
  }
  // Rows of gate and up in pairs, packed; neither has a bias.
  Result<LinearOnDevice> PackedPairs(const LinearWeights& gate, const LinearWeights& up) {
    LinearOnDevice out;
    SEQ2SEQ_ASSIGN_OR_RETURN(out.weight, Pack({&gate.weight, &up.weight}, true));
    return out;
  }

  ElementType type() const { return type_; }

  Status Finish() {
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
    return OkStatus();
  }

 private:
  static size_t LargestTensorBytes(const Checkpoint& checkpoint) {
    size_t largest = 0;
    const auto see = [&](const TensorView& tensor) {
      if (tensor.present()) {
        largest = std::max(largest, tensor.elements() * DTypeBytes(tensor.dtype));
      }
    };
    for (const StackWeights* stack : {&checkpoint.encoder(), &checkpoint.decoder()}) {
      see(stack->embedding);
      see(stack->position_table);
      for (const LayerWeights& layer : stack->layers) {
        for (const AttentionWeights* attention : {&layer.self_attention, &layer.cross_attention}) {
          for (const LinearWeights* linear :
               {&attention->q, &attention->k, &attention->v, &attention->o}) {
            see(linear->weight);
          }
        }
        for (const LinearWeights* linear : {&layer.ffn.gate, &layer.ffn.up, &layer.ffn.down}) {
          see(linear->weight);
        }
      }
    }
    see(checkpoint.lm_head());
    return largest;
  }

  static std::vector<const TensorView*> WeightsOf(const std::vector<const LinearWeights*>& parts) {
    std::vector<const TensorView*> weights;
    for (const LinearWeights* part : parts) weights.push_back(&part->weight);
    return weights;
  }

  // One after the other, zeros for parts that have none; empty if all have none.
  Result<DeviceBuffer> Biases(const std::vector<const LinearWeights*>& parts, ElementType type) {
    const auto biased = [](const LinearWeights* part) { return part->bias.present(); };
    if (std::ranges::none_of(parts, biased)) return DeviceBuffer();
    int64_t outputs = 0;
    for (const LinearWeights* part : parts) outputs += part->weight.shape[0];
    SEQ2SEQ_ASSIGN_OR_RETURN(DeviceBuffer buffer, Zeroed(outputs * ElementBytes(type)));
    auto* destination = buffer.as<std::byte>();
    for (const LinearWeights* part : parts) {
      if (biased(part)) {
        SEQ2SEQ_RETURN_IF_ERROR(Convert(part->bias, destination, type));
      }
      destination += part->weight.shape[0] * ElementBytes(type);
    }
    return buffer;
  }

  template <typename T>
  Result<DeviceBuffer> Values(const std::vector<T>& values) {
    SEQ2SEQ_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                             DeviceBuffer::Allocate(values.size() * sizeof(T)));
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(buffer.as(), values.data(), buffer.bytes(),
                                                 cudaMemcpyHostToDevice, stream_.get()));
    SEQ2SEQ_RETURN_IF_ERROR(Finish());  // `values` is the caller's and may go
    return buffer;
  }

  Result<DeviceBuffer> Zeroed(size_t bytes) {
    return DeviceBuffer::AllocateZeroed(bytes, stream_.get());
  }

  Status Stage(const TensorView& tensor) {
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(staging_.as(), tensor.data,
                                                 tensor.elements() * DTypeBytes(tensor.dtype),
                                                 cudaMemcpyHostToDevice, stream_.get()));
    return OkStatus();
  }

  Status Convert(const TensorView& tensor, void* destination, ElementType type) {
    SEQ2SEQ_RETURN_IF_ERROR(Stage(tensor));
    kernels::ConvertArgs args;
    args.source = staging_.as();
    args.source_type = ElementTypeOf(tensor.dtype);
    args.destination = destination;
    args.destination_type = type;
    args.count = tensor.elements();
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::LaunchConvert(args, {stream_.get()}));
    return OkStatus();
  }

  Result<DeviceBuffer> Pack(const std::vector<const TensorView*>& tensors, bool paired) {
    const auto columns = static_cast<int32_t>(tensors[0]->shape[1]);
    int64_t outputs = 0;
    for (const TensorView* tensor : tensors) {
      // A pair's rows come in groups of 8, the last of which may not be full.
      outputs += paired ? (tensor->shape[0] + 7) / 8 * 8 : tensor->shape[0];
    }
    SEQ2SEQ_ASSIGN_OR_RETURN(
        DeviceBuffer buffer,
        Zeroed(kernels::PackedElements(static_cast<int32_t>(outputs), columns) *
               ElementBytes(type_)));
    kernels::PackArgs args;
    args.source = staging_.as();
    args.columns = columns;
    args.packed = buffer.as();
    args.packed_type = type_;
    args.paired = paired;
    for (const TensorView* tensor : tensors) {
      SEQ2SEQ_RETURN_IF_ERROR(Stage(*tensor));
      args.source_type = ElementTypeOf(tensor->dtype);
      args.rows = static_cast<int32_t>(tensor->shape[0]);
      SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::LaunchPack(args, {stream_.get()}));
      args.first_output += args.rows;
      args.half += 1;
    }
    return buffer;
  }

  ElementType type_ = ElementType::kFloat32;
  CudaStream stream_;
  DeviceBuffer staging_;
};

Result<StackStartOnDevice> LoadStart(const StackWeights& stack, Uploader* up) {
  StackStartOnDevice out;
  if (stack.position_table.present()) {
    out.positions = static_cast<int32_t>(stack.position_table.shape[0]);
    SEQ2SEQ_ASSIGN_OR_RETURN(out.position_table, up->Floats(stack.position_table));
  }
  SEQ2SEQ_ASSIGN_OR_RETURN(out.embedding_norm, up->Norm(stack.embedding_norm));
  return out;
}

Result<EncoderLayerOnDevice> LoadEncoderLayer(const LayerWeights& layer, const ModelSpec& spec,
                                              Uploader* up) {
  EncoderLayerOnDevice out;
  const AttentionWeights& attention = layer.self_attention;
  std::vector<const LinearWeights*> ffn_in = {&layer.ffn.up};
  if (spec.gated_ffn) ffn_in.insert(ffn_in.begin(), &layer.ffn.gate);
  SEQ2SEQ_ASSIGN_OR_RETURN(out.attention_norm, up->Norm(attention.norm));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.query_key_value,
                           up->RowMajor({&attention.q, &attention.k, &attention.v}, up->type()));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.attention_out, up->RowMajor({&attention.o}, ElementType::kFloat32));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.ffn_norm, up->Norm(layer.ffn.norm));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.ffn_in, up->RowMajor(ffn_in, up->type()));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.ffn_out, up->RowMajor({&layer.ffn.down}, ElementType::kFloat32));
  if (layer.position_bias.present()) {
    SEQ2SEQ_ASSIGN_OR_RETURN(out.position_bias, up->HostFloats(EncoderBiasByDistance(
                                                    layer.position_bias, spec.relative_positions)));
  }
  return out;
}

Result<DecoderLayerOnDevice> LoadDecoderLayer(const LayerWeights& layer, const ModelSpec& spec,
                                              Uploader* up) {
  DecoderLayerOnDevice out;
  const AttentionWeights& self = layer.self_attention;
  const AttentionWeights& cross = layer.cross_attention;
  SEQ2SEQ_ASSIGN_OR_RETURN(out.self_norm, up->Norm(self.norm));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.query_key_value, up->Packed({&self.q, &self.k, &self.v}));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.self_out, up->Packed({&self.o}));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.cross_norm, up->Norm(cross.norm));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.cross_query, up->Packed({&cross.q}));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.cross_out, up->Packed({&cross.o}));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.ffn_norm, up->Norm(layer.ffn.norm));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.ffn_in, spec.gated_ffn
                                           ? up->PackedPairs(layer.ffn.gate, layer.ffn.up)
                                           : up->Packed({&layer.ffn.up}));
  SEQ2SEQ_ASSIGN_OR_RETURN(out.ffn_out, up->Packed({&layer.ffn.down}));
  if (layer.position_bias.present()) {
    SEQ2SEQ_ASSIGN_OR_RETURN(out.position_bias, up->HostFloats(DecoderBiasByDistance(
                                                    layer.position_bias, spec.relative_positions)));
  }
  return out;
}

}  // namespace

ElementType ElementTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ElementType::kFloat32;
    case DType::kFloat16:
      return ElementType::kFloat16;
    case DType::kBFloat16:
      return ElementType::kBfloat16;
  }
  return ElementType::kFloat32;
}

kernels::ActivationKind ActivationKindOf(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return kernels::ActivationKind::kRelu;
    case Activation::kGelu:
      return kernels::ActivationKind::kGelu;
    case Activation::kGeluTanh:
      return kernels::ActivationKind::kGeluTanh;
    case Activation::kSilu:
      return kernels::ActivationKind::kSilu;
  }
  return kernels::ActivationKind::kRelu;
}

Result<std::shared_ptr<const DeviceWeights>> DeviceWeights::Load(const Checkpoint& checkpoint,
                                                                 DType dtype) {
  SEQ2SEQ_RETURN_IF_ERROR(CheckSupported(checkpoint, dtype));
  auto weights = std::make_shared<DeviceWeights>();
  weights->spec = checkpoint.spec();
  weights->type = ElementTypeOf(dtype);
  SEQ2SEQ_ASSIGN_OR_RETURN(Uploader up, Uploader::Create(checkpoint, weights->type));
  const StackWeights& encoder = checkpoint.encoder();
  const StackWeights& decoder = checkpoint.decoder();
  SEQ2SEQ_ASSIGN_OR_RETURN(weights->encoder_embedding, up.RowMajor({&encoder.embedding}));
  if (decoder.embedding.data != encoder.embedding.data) {
    SEQ2SEQ_ASSIGN_OR_RETURN(weights->decoder_embedding, up.RowMajor({&decoder.embedding}));
  }
  SEQ2SEQ_ASSIGN_OR_RETURN(weights->encoder_start, LoadStart(encoder, &up));
  SEQ2SEQ_ASSIGN_OR_RETURN(weights->decoder_start, LoadStart(decoder, &up));
  for (const LayerWeights& layer : encoder.layers) {
    SEQ2SEQ_ASSIGN_OR_RETURN(EncoderLayerOnDevice on_device,
                             LoadEncoderLayer(layer, weights->spec, &up));
    weights->encoder.push_back(std::move(on_device));
  }
  for (const LayerWeights& layer : decoder.layers) {
    SEQ2SEQ_ASSIGN_OR_RETURN(DecoderLayerOnDevice on_device,
                             LoadDecoderLayer(layer, weights->spec, &up));
    weights->decoder.push_back(std::move(on_device));
  }
  SEQ2SEQ_ASSIGN_OR_RETURN(weights->encoder_final_norm, up.Norm(encoder.final_norm));
  std::vector<const LinearWeights*> cross;
  for (const LayerWeights& layer : decoder.layers) {
    cross.push_back(&layer.cross_attention.k);
    cross.push_back(&layer.cross_attention.v);
  }
  SEQ2SEQ_ASSIGN_OR_RETURN(weights->cross_key_value, up.RowMajor(cross, up.type()));
  SEQ2SEQ_ASSIGN_OR_RETURN(weights->decoder_final_norm, up.Norm(decoder.final_norm));
  const LinearWeights head{checkpoint.lm_head(), decoder.logits_bias};
  SEQ2SEQ_ASSIGN_OR_RETURN(weights->lm_head, up.Packed({&head}));
  const std::vector<int32_t>& eos = checkpoint.generation().eos_token_ids;
  weights->eos_count = static_cast<int32_t>(eos.size());
  SEQ2SEQ_ASSIGN_OR_RETURN(weights->eos_tokens, up.HostInts(eos));
  SEQ2SEQ_RETURN_IF_ERROR(up.Finish());
  return std::shared_ptr<const DeviceWeights>(std::move(weights));
}

}  // namespace seq2seq
