#include "backend/triton/model_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "backend/core/format.h"

namespace seq2seq {
namespace {

using nlohmann::json;

// Every tensor has dims [-1].
struct TensorDeclaration {
  std::string_view name;
  std::string_view data_type;
  bool compulsory;  // in a complete configuration
};

// A list of the configuration: all inputs are optional in requests.
struct TensorList {
  const char* key;
  bool optional_in_requests;
  std::span<const TensorDeclaration> tensors;
};

constexpr std::array kInputs = {TensorDeclaration{kInputIds, "TYPE_INT32", true},
                                TensorDeclaration{kDecoderInputIds, "TYPE_INT32", false}};
constexpr std::array kOutputs = {TensorDeclaration{kOutputIds, "TYPE_INT32", true},
                                 TensorDeclaration{kLogprobs, "TYPE_FP32", false}};
const TensorList kLists[] = {{"input", true, kInputs}, {"output", false, kOutputs}};

std::string Expected(const TensorList& list, const TensorDeclaration& tensor) {
  return Format("{} {} dims [-1]{}", tensor.name, tensor.data_type,
                list.optional_in_requests ? " optional" : "");
}

std::string Expected(const TensorList& list) {
  std::string text;
  for (const TensorDeclaration& tensor : list.tensors) {
    text += (text.empty() ? "" : ", ") + Expected(list, tensor);
  }
  return text;
}

json Declare(const TensorList& list, const TensorDeclaration& tensor) {
  json declared = {{"name", tensor.name}, {"data_type", tensor.data_type}, {"dims", {-1}}};
  if (list.optional_in_requests) declared["optional"] = true;
  return declared;
}

// The object's member, or null where there is none.
const json& Member(const json& object, const char* key) {
  static const json kNull;
  const auto member = object.is_object() ? object.find(key) : object.end();
  return member == object.end() ? kNull : *member;
}

bool IsName(const json& declared, std::string_view name) {
  const json& value = Member(declared, "name");
  return value.is_string() && value.get_ref<const std::string&>() == name;
}

bool Declares(const json& declarations, std::string_view name) {
  if (!declarations.is_array()) return false;
  for (const json& declared : declarations) {
    if (IsName(declared, name)) return true;
  }
  return false;
}

// Triton writes 64-bit numbers as JSON numbers or as strings.
bool IsMinusOne(const json& value) {
  return value == -1 || (value.is_string() && value.get_ref<const std::string&>() == "-1");
}

bool Matches(const TensorList& list, const TensorDeclaration& tensor, const json& declared) {
  const json& dims = Member(declared, "dims");
  if (Member(declared, "data_type") != json(tensor.data_type)) return false;
  if (!dims.is_array() || dims.size() != 1 || !IsMinusOne(dims[0])) return false;
  if (!Member(declared, "reshape").is_null()) return false;
  return !list.optional_in_requests || Member(declared, "optional") == json(true);
}

Status ValidateDeclaration(const TensorList& list, const json& declared) {
  for (const TensorDeclaration& tensor : list.tensors) {
    if (!IsName(declared, tensor.name)) continue;
    if (Matches(list, tensor, declared)) return OkStatus();
    return InvalidArgument(Format("config.pbtxt: {} '{}' must be declared as: {}", list.key,
                                  tensor.name, Expected(list, tensor)));
  }
  const json& name = Member(declared, "name");
  return InvalidArgument(Format("config.pbtxt: unknown {} {}; expected are: {}", list.key,
                                name.dump(), Expected(list)));
}

Status ValidateList(const TensorList& list, const json& config) {
  const json& declarations = Member(config, list.key);
  if (!declarations.is_null() && !declarations.is_array()) {
    return InvalidArgument(Format("model configuration: '{}' is not a list", list.key));
  }
  for (const json& declared : declarations) {
    SEQ2SEQ_RETURN_IF_ERROR(ValidateDeclaration(list, declared));
  }
  for (const TensorDeclaration& tensor : list.tensors) {
    if (tensor.compulsory && !Declares(declarations, tensor.name)) {
      return InvalidArgument(Format("config.pbtxt: {} '{}' is missing; expected: {}", list.key,
                                    tensor.name, Expected(list, tensor)));
    }
  }
  return OkStatus();
}

}  // namespace

Result<json> ParseModelConfig(std::string_view text) {
  json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return InvalidArgument("model configuration: not a JSON object");
  }
  return config;
}

void CompleteModelConfig(json* config) {
  for (const TensorList& list : kLists) {
    json& declarations = (*config)[list.key];
    if (declarations.is_null()) declarations = json::array();
    if (!declarations.is_array()) continue;
    for (const TensorDeclaration& tensor : list.tensors) {
      if (!Declares(declarations, tensor.name)) declarations.push_back(Declare(list, tensor));
    }
  }
  if (!config->contains("max_batch_size")) (*config)["max_batch_size"] = 0;
  if (!config->contains("model_transaction_policy")) {
    (*config)["model_transaction_policy"] = {{"decoupled", true}};
  }
}

Status ValidateModelConfig(const json& config) {
  const json& max_batch_size = Member(config, "max_batch_size");
  if (!max_batch_size.is_null() && max_batch_size != 0) {
    return InvalidArgument(
        Format("config.pbtxt: max_batch_size is {}; it must be 0: the backend batches by itself",
               max_batch_size.dump()));
  }
  for (const char* batcher : {"dynamic_batching", "sequence_batching"}) {
    if (config.contains(batcher)) {
      return InvalidArgument(
          Format("config.pbtxt: {} is not allowed: the backend batches by itself", batcher));
    }
  }
  const json& groups = Member(config, "instance_group");
  if (groups.is_array() && std::ranges::any_of(groups, [](const json& group) {
        return Member(group, "passive") == json(true);
      })) {
    return InvalidArgument(
        "config.pbtxt: instance_group: passive is not allowed: such instances take no requests");
  }
  if (Member(Member(config, "model_transaction_policy"), "decoupled") != json(true)) {
    return InvalidArgument(
        "config.pbtxt: model_transaction_policy must be { decoupled: true }: a request has several "
        "responses");
  }
  for (const TensorList& list : kLists) SEQ2SEQ_RETURN_IF_ERROR(ValidateList(list, config));
  return OkStatus();
}

}  // namespace seq2seq
