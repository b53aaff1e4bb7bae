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

// Matrices are row-major [outputs][inputs] in the model's number format.
struct EncoderLayerOnDevice {
  DeviceBuffer attention_norm;   // float [d_model]
  DeviceBuffer query_key_value;  // [3 inner, d_model]
  DeviceBuffer attention_out;    // [d_model, inner]
  DeviceBuffer ffn_norm;
  DeviceBuffer ffn_in;   // [d_ff or 2 d_ff, d_model]: up, or gate then up
  DeviceBuffer ffn_out;  // [d_model, d_ff]
  DeviceBuffer bias;     // float, EncoderBiasByDistance; empty if the layer uses layer 0's
};

// Matrices are packed for kernels::LaunchProjection.
struct DecoderLayerOnDevice {
  DeviceBuffer self_norm;
  DeviceBuffer query_key_value;
  DeviceBuffer self_out;
  DeviceBuffer cross_norm;
  DeviceBuffer cross_query;
  DeviceBuffer cross_out;
  DeviceBuffer ffn_norm;
  DeviceBuffer ffn_in;  // gated: gate and up in pairs
  DeviceBuffer ffn_out;
  DeviceBuffer bias;  // float, DecoderBiasByDistance; empty if the layer uses layer 0's
};

// Immutable after loading; shared by the engines of one model on one device.
struct DeviceWeights {
  ModelSpec spec;
  kernels::ElementType type = kernels::ElementType::kFloat32;
  DeviceBuffer encoder_embedding;  // row-major [vocabulary, d_model]
  DeviceBuffer decoder_embedding;  // empty if it is the encoder's
  std::vector<EncoderLayerOnDevice> encoder;
  std::vector<DecoderLayerOnDevice> decoder;
  DeviceBuffer encoder_final_norm;
  DeviceBuffer cross_key_value;  // row-major [decoder layers][key, value][inner, d_model]
  DeviceBuffer decoder_final_norm;
  DeviceBuffer lm_head;  // packed
  DeviceBuffer eos_tokens;
  int32_t eos_count = 0;

  const void* decoder_embedding_data() const {
    return decoder_embedding.bytes() == 0 ? encoder_embedding.as() : decoder_embedding.as();
  }
  const float* encoder_bias(size_t layer) const {
    return (encoder[layer].bias.bytes() == 0 ? encoder[0] : encoder[layer]).bias.as<float>();
  }
  const float* decoder_bias(size_t layer) const {
    return (decoder[layer].bias.bytes() == 0 ? decoder[0] : decoder[layer]).bias.as<float>();
  }

  // Converts `checkpoint` to `dtype` on the current device. kUnsupported, naming the property, if
  // the model has something that the kernels don't do.
  [[nodiscard]] static Result<std::shared_ptr<const DeviceWeights>> Load(
      const Checkpoint& checkpoint, DType dtype);
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_DEVICE_WEIGHTS_H_
