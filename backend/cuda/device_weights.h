// A checkpoint's weights on a device, in the forms that the kernels read.
#ifndef SEQ2SEQ_BACKEND_CUDA_DEVICE_WEIGHTS_H_
#define SEQ2SEQ_BACKEND_CUDA_DEVICE_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/core/status.h"
#include "backend/cuda/device_buffer.h"
#include "backend/kernels/activation_kind.h"
#include "backend/kernels/element_type.h"
#include "backend/model/checkpoint.h"

namespace seq2seq {

kernels::ElementType ElementTypeOf(DType dtype);
kernels::ActivationKind ActivationKindOf(Activation activation);

// float [d_model]; the bias is empty where there is none.
struct NormOnDevice {
  DeviceBuffer weight;
  DeviceBuffer bias;
};

// The bias is empty where none of the matrix's parts has one.
struct LinearOnDevice {
  DeviceBuffer weight;
  DeviceBuffer bias;  // [outputs]
};

// What comes between the embedding and the first layer, but for that layer's own norm.
struct StackStartOnDevice {
  DeviceBuffer position_table;  // float [positions, d_model]; empty with relative positions
  int32_t positions = 0;
  NormOnDevice embedding_norm;  // empty where the family has none
};

// Matrices are row-major [outputs][inputs] in the model's number format; biases have the format of
// what they are added to.
struct EncoderLayerOnDevice {
  NormOnDevice attention_norm;
  LinearOnDevice query_key_value;  // [3 inner, d_model]
  LinearOnDevice attention_out;    // [d_model, inner]; bias: float
  NormOnDevice ffn_norm;
  LinearOnDevice ffn_in;       // [d_ff or 2 d_ff, d_model]: up, or gate then up
  LinearOnDevice ffn_out;      // [d_model, d_ff]; bias: float
  DeviceBuffer position_bias;  // float, EncoderBiasByDistance; empty: layer 0's, or there is none
};

// Matrices are packed for kernels::LaunchProjection; biases are float.
struct DecoderLayerOnDevice {
  NormOnDevice self_norm;
  LinearOnDevice query_key_value;
  LinearOnDevice self_out;
  NormOnDevice cross_norm;
  LinearOnDevice cross_query;
  LinearOnDevice cross_out;
  NormOnDevice ffn_norm;
  LinearOnDevice ffn_in;  // gated: gate and up in pairs
  LinearOnDevice ffn_out;
  DeviceBuffer position_bias;  // float, DecoderBiasByDistance; empty: layer 0's, or there is none
};

// Immutable after loading; shared by the engines of one model on one device.
struct DeviceWeights {
  ModelSpec spec;
  kernels::ElementType type = kernels::ElementType::kFloat32;
  DeviceBuffer encoder_embedding;  // row-major [vocabulary, d_model]
  DeviceBuffer decoder_embedding;  // empty if it is the encoder's
  StackStartOnDevice encoder_start;
  StackStartOnDevice decoder_start;
  std::vector<EncoderLayerOnDevice> encoder;
  std::vector<DecoderLayerOnDevice> decoder;
  NormOnDevice encoder_final_norm;  // empty where the family has none
  LinearOnDevice cross_key_value;   // row-major [decoder layers][key, value][inner, d_model]
  NormOnDevice decoder_final_norm;
  LinearOnDevice lm_head;  // packed; bias: float
  DeviceBuffer eos_tokens;
  int32_t eos_count = 0;

  const void* decoder_embedding_data() const {
    return decoder_embedding.bytes() == 0 ? encoder_embedding.as() : decoder_embedding.as();
  }
  // Null where positions are a table's.
  const float* encoder_bias(size_t layer) const { return PositionBias(encoder, layer); }
  const float* decoder_bias(size_t layer) const { return PositionBias(decoder, layer); }

  // Converts `checkpoint` to `dtype` on the current device. kUnsupported, naming the property, if
  // the model has something that the kernels don't do.
  [[nodiscard]] static Result<std::shared_ptr<const DeviceWeights>> Load(
      const Checkpoint& checkpoint, DType dtype);

 private:
  template <typename Layer>
  static const float* PositionBias(const std::vector<Layer>& layers, size_t layer) {
    const DeviceBuffer& own = layers[layer].position_bias;
    return (own.bytes() == 0 ? layers[0].position_bias : own).template as<float>();
  }
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_DEVICE_WEIGHTS_H_
