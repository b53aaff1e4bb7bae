// Who a model is, as Triton names it, and its configuration.
#ifndef SEQ2SEQ_BACKEND_TRITON_MODEL_IDENTITY_H_
#define SEQ2SEQ_BACKEND_TRITON_MODEL_IDENTITY_H_

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "backend/core/status.h"
#include "backend/triton/triton_abi.h"

namespace seq2seq {

struct ModelIdentity {
  std::string name;
  std::string version;
  std::filesystem::path directory;  // <repository>/<version>: the checkpoint
};

[[nodiscard]] Result<ModelIdentity> IdentifyModel(TRITONBACKEND_Model* model);

// The model's configuration, validated. Where the server lets backends complete configurations,
// what is missing is added first, and the server told.
[[nodiscard]] Result<nlohmann::json> ReadModelConfig(TRITONBACKEND_Model* model);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_MODEL_IDENTITY_H_
