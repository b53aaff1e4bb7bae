#include "backend/cpu/weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "backend/core/format.h"

namespace seq2seq::cpu {
namespace {

// A matrix to pack: sizes are added up first, so that all of them share one mapping.
struct PackJob {
  PackedMatrix* target;
  std::vector<TensorView> parts;
  std::string name;
  DType dtype;
};

class Packer {
 public:
  explicit Packer(std::optional<DType> dtype) : dtype_(dtype) {}

  void Add(PackedMatrix* target, std::vector<TensorView> parts, std::string name) {
    DType dtype = parts.front().dtype;
    for (const TensorView& part : parts) {
      if (part.dtype != dtype) dtype = DType::kFloat32;
    }
    jobs_.push_back({target, std::move(parts), std::move(name), dtype_.value_or(dtype)});
  }

  void Add(Linear* target, std::vector<LinearWeights> parts, std::string name) {
    const bool biased =
        std::ranges::any_of(parts, [](const LinearWeights& part) { return part.bias.present(); });
    std::vector<TensorView> weights;
    for (const LinearWeights& part : parts) {
      weights.push_back(part.weight);
      if (!biased) continue;
      std::vector<float> bias(part.weight.shape[0]);
      if (part.bias.present()) bias = ToFloats(part.bias);
      target->bias.insert(target->bias.end(), bias.begin(), bias.end());
    }
    Add(&target->matrix, std::move(weights), std::move(name));
  }

  Result<AnonymousMemory> Run() {
    size_t bytes = 0;
    for (const PackJob& job : jobs_) bytes += Bytes(job);
    SEQ2SEQ_ASSIGN_OR_RETURN(AnonymousMemory memory, AnonymousMemory::Map(bytes, "the weights"));
    std::byte* at = memory.data();
    for (const PackJob& job : jobs_) {
      SEQ2SEQ_ASSIGN_OR_RETURN(*job.target, PackedMatrix::Pack(job.parts, job.dtype, job.name, at));
      at += Bytes(job);
      for (const TensorView& part : job.parts) ForgetPages(part);
    }
    return memory;
  }

 private:
  static size_t Bytes(const PackJob& job) {
    int64_t outputs = 0;
    for (const TensorView& part : job.parts) outputs += part.shape[0];
    return PackedMatrix::PackedBytes(outputs, job.parts.front().shape[1], job.dtype);
  }

  // Pages of file mappings that were read may leave this process, so that the weights are not
  // resident twice. Whoever reads them again gets them again; other memory would come back as
  // zeros.
  static void ForgetPages(const TensorView& view) {
    if (!view.in_file) return;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<uintptr_t>(view.data) + page - 1) / page * page;
    const auto end =
        (reinterpret_cast<uintptr_t>(view.data) + view.elements() * DTypeBytes(view.dtype)) / page *
        page;
    if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }

  std::optional<DType> dtype_;
  std::vector<PackJob> jobs_;
};

void AddLayer(const LayerWeights& from, const std::string& name, Layer* to, Packer* packer) {
  const AttentionWeights& self = from.self_attention;
  to->self.norm = ToFloats(self.norm.weight);
  packer->Add(&to->self.qkv, {self.q, self.k, self.v}, name + " self-attention q, k, v");
  packer->Add(&to->self.out, {self.o}, name + " self-attention output");
  if (const AttentionWeights& cross = from.cross_attention; cross.q.weight.present()) {
    to->cross.norm = ToFloats(cross.norm.weight);
    packer->Add(&to->cross.q, {cross.q}, name + " cross-attention q");
    packer->Add(&to->cross.kv, {cross.k, cross.v}, name + " cross-attention k, v");
    packer->Add(&to->cross.out, {cross.o}, name + " cross-attention output");
  }
  const FfnWeights& ffn = from.ffn;
  to->ffn.norm = ToFloats(ffn.norm.weight);
  if (ffn.gate.weight.present()) {
    packer->Add(&to->ffn.gate, {ffn.gate}, name + " feed-forward gate");
  }
  packer->Add(&to->ffn.up, {ffn.up}, name + " feed-forward input");
  packer->Add(&to->ffn.down, {ffn.down}, name + " feed-forward output");
  if (from.position_bias.present()) to->position_bias = ToFloats(from.position_bias);
}

void AddStack(const StackWeights& from, const std::string& name, Stack* to, Packer* packer) {
  to->layers.resize(from.layers.size());
  for (size_t layer = 0; layer < from.layers.size(); ++layer) {
    AddLayer(from.layers[layer], Format("{} layer {}", name, layer), &to->layers[layer], packer);
  }
  to->final_norm = ToFloats(from.final_norm.weight);
}

bool HasNormBias(const Checkpoint& checkpoint) {
  for (const StackWeights* stack : {&checkpoint.encoder(), &checkpoint.decoder()}) {
    if (stack->final_norm.bias.present()) return true;
    for (const LayerWeights& layer : stack->layers) {
      if (layer.self_attention.norm.bias.present() || layer.cross_attention.norm.bias.present() ||
          layer.ffn.norm.bias.present()) {
        return true;
      }
    }
  }
  return false;
}

// What the model has that this engine does not compute, or null.
const char* UnsupportedPart(const Checkpoint& checkpoint) {
  const ModelSpec& spec = checkpoint.spec();
  if (spec.norm != NormKind::kRms) return "norms other than RMSNorm";
  if (spec.norm_placement != NormPlacement::kPre) return "norms behind sub-layers";
  if (!spec.final_norm) return "no final norm";
  if (spec.positions != PositionKind::kRelativeBuckets) return "a table of positions";
  if (spec.embedding_norm) return "a norm of embeddings";
  if (spec.embedding_scale != 1.0F) return "scaled embeddings";
  if (HasNormBias(checkpoint)) return "norms with biases";
  if (checkpoint.decoder().logits_bias.present()) return "biases of the logits";
  return nullptr;
}

Status CheckSupported(const Checkpoint& checkpoint) {
  const char* part = UnsupportedPart(checkpoint);
  if (part == nullptr) return OkStatus();
  return Unsupported(Format("the CPU engine does not compute models like this of type '{}': {}",
                            checkpoint.spec().model_type, part));
}

}  // namespace

Result<std::shared_ptr<const Weights>> Weights::Make(const Checkpoint& checkpoint,
                                                     std::optional<DType> dtype) {
  SEQ2SEQ_RETURN_IF_ERROR(CheckSupported(checkpoint));
  try {
    auto weights = std::make_shared<Weights>();
    SEQ2SEQ_RETURN_IF_ERROR(weights->Fill(checkpoint, dtype));
    return weights;
  } catch (const std::exception& failure) {
    return InvalidArgument(Format("can't hold the weights in memory: {}", failure.what()));
  }
}

Status Weights::Fill(const Checkpoint& checkpoint, std::optional<DType> dtype) {
  spec_ = checkpoint.spec();
  Packer packer(dtype);
  const TensorView& encoder_table = checkpoint.encoder().embedding;
  const TensorView& decoder_table = checkpoint.decoder().embedding;
  const TensorView& head = checkpoint.lm_head();
  packer.Add(&head_.matrix, {head}, "the LM head");
  const bool decoder_tied = decoder_table.data == head.data;
  if (!decoder_tied) {
    packer.Add(&decoder_.embedding, {decoder_table}, "the decoder's embedding");
  }
  const bool encoder_tied = encoder_table.data == head.data;
  const bool encoder_shared = encoder_table.data == decoder_table.data;
  if (!encoder_tied && !encoder_shared) {
    packer.Add(&encoder_.embedding, {encoder_table}, "the encoder's embedding");
  }
  AddStack(checkpoint.encoder(), "encoder", &encoder_, &packer);
  AddStack(checkpoint.decoder(), "decoder", &decoder_, &packer);
  SEQ2SEQ_ASSIGN_OR_RETURN(memory_, packer.Run());
  if (decoder_tied) decoder_.embedding = head_.matrix;
  if (encoder_tied) {
    encoder_.embedding = head_.matrix;
  } else if (encoder_shared) {
    encoder_.embedding = decoder_.embedding;
  }
  return OkStatus();
}

}  // namespace seq2seq::cpu
