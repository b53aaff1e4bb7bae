#include "backend/triton/model_identity.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "backend/triton/error_translation.h"
#include "backend/triton/model_config.h"
#include "backend/triton/triton_handles.h"

namespace seq2seq {
namespace {

constexpr uint32_t kConfigVersion = 1;

Result<nlohmann::json> FetchConfig(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* message = nullptr;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelConfig(model, kConfigVersion, &message)));
  const MessageHandle owned(message);
  const char* text = nullptr;
  size_t bytes = 0;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONSERVER_MessageSerializeToJson(message, &text, &bytes)));
  return ParseModelConfig(std::string_view(text, bytes));
}

Status StoreConfig(TRITONBACKEND_Model* model, const nlohmann::json& config) {
  const std::string text = config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  TRITONSERVER_Message* message = nullptr;
  SEQ2SEQ_RETURN_IF_ERROR(
      ToStatus(TRITONSERVER_MessageNewFromSerializedJson(&message, text.data(), text.size())));
  const MessageHandle owned(message);
  return ToStatus(TRITONBACKEND_ModelSetConfig(model, kConfigVersion, message));
}

}  // namespace

Result<ModelIdentity> IdentifyModel(TRITONBACKEND_Model* model) {
  const char* name = nullptr;
  uint64_t version = 0;
  TRITONBACKEND_ArtifactType type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  const char* location = nullptr;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelName(model, &name)));
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelVersion(model, &version)));
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelRepository(model, &type, &location)));
  if (type != TRITONBACKEND_ARTIFACT_FILESYSTEM) {
    return Unsupported("the model repository must be on a file system");
  }
  ModelIdentity identity;
  identity.name = name;
  identity.version = std::to_string(version);
  identity.directory = std::filesystem::path(location) / identity.version;
  return identity;
}

Result<nlohmann::json> ReadModelConfig(TRITONBACKEND_Model* model) {
  SEQ2SEQ_ASSIGN_OR_RETURN(nlohmann::json config, FetchConfig(model));
  bool may_complete = false;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelAutoCompleteConfig(model, &may_complete)));
  nlohmann::json completed = config;
  if (may_complete) CompleteModelConfig(&completed);
  SEQ2SEQ_RETURN_IF_ERROR(ValidateModelConfig(completed));
  if (completed != config) SEQ2SEQ_RETURN_IF_ERROR(StoreConfig(model, completed));
  return completed;
}

}  // namespace seq2seq
