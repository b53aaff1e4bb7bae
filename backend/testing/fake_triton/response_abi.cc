// TRITONBACKEND_*: response factories and responses.
#include <cstring>
#include <string>
#include <vector>

#include "backend/core/clock.h"
#include "backend/testing/fake_triton/abi_call.h"
#include "backend/triton/triton_abi.h"

using seq2seq::AbiCall;
using seq2seq::FakeResponse;

namespace {

template <typename Element>
std::vector<Element> Elements(const TRITONBACKEND_Output& output) {
  std::vector<Element> elements(output.bytes.size() / sizeof(Element));
  if (!elements.empty()) std::memcpy(elements.data(), output.bytes.data(), output.bytes.size());
  return elements;
}

// What the client gets to see of `response`.
FakeResponse Record(AbiCall& call, const TRITONBACKEND_Response& response) {
  FakeResponse record;
  record.parameters = response.parameters;
  for (const TRITONBACKEND_Output* output : response.outputs) {
    if (!output->has_buffer) call.triton().Problem("an output was sent without a buffer");
    if (output->name == "output_ids" && output->type == TRITONSERVER_TYPE_INT32) {
      record.output_ids = Elements<int32_t>(*output);
    } else if (output->name == "logprobs" && output->type == TRITONSERVER_TYPE_FP32) {
      record.logprobs = Elements<float>(*output);
    } else {
      call.triton().Problem("output '" + output->name + "' is unknown or has another type");
    }
  }
  return record;
}

// Notes what is wrong with sending now, and counts the send.
void CountSend(AbiCall& call, TRITONBACKEND_ResponseFactory* factory, uint32_t flags) {
  const bool final = flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL;
  if (factory->final_sent) {
    call.triton().Problem(final ? "FINAL was sent twice" : "a response was sent after FINAL");
  }
  if (!final && flags != 0) call.triton().Problem("unknown send flags");
  factory->final_sent = factory->final_sent || final;
  ++factory->sends;
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory** factory,
                                                     TRITONBACKEND_Request* request) {
  AbiCall call("ResponseFactoryNew");
  if (!call.Allows(request, factory)) return call.Misused();
  if (request->data.faults.fail_factory) return call.Fail("no response factory");
  *factory = call.triton().New<TRITONBACKEND_ResponseFactory>();
  (*factory)->request = request;
  request->factory = *factory;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory* factory) {
  AbiCall call("ResponseFactoryDelete");
  if (!call.Allows(factory)) return call.Misused();
  factory->alive = false;
  factory->request->call->OnEvent("delete factory");
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory* factory,
                                                           uint32_t flags) {
  AbiCall call("ResponseFactorySendFlags");
  if (!call.Allows(factory)) return call.Misused();
  if (factory->request->data.faults.fail_send_flags) return call.Fail("flags are not sent");
  CountSend(call, factory, flags);
  FakeResponse record;
  record.final = true;
  record.bare = true;
  factory->request->call->OnResponse(record);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory* factory,
                                                             bool* cancelled) {
  AbiCall call("ResponseFactoryIsCancelled");
  if (!call.Allows(factory, cancelled)) return call.Misused();
  *cancelled = factory->request->call->cancelled();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response** response,
                                                         TRITONBACKEND_ResponseFactory* factory) {
  AbiCall call("ResponseNewFromFactory");
  if (!call.Allows(factory, response)) return call.Misused();
  if (factory->request->data.faults.fail_new_response.contains(factory->responses_made++)) {
    return call.Fail("no response");
  }
  *response = call.triton().New<TRITONBACKEND_Response>();
  (*response)->factory = factory;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response* response) {
  AbiCall call("ResponseDelete");
  if (!call.Allows(response)) return call.Misused();
  call.triton().Problem("a response was deleted: a gRPC stream waits for each that was made");
  response->alive = false;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response,
                                                 TRITONBACKEND_Output** output, const char* name,
                                                 TRITONSERVER_DataType type, const int64_t* shape,
                                                 uint32_t dims) {
  AbiCall call("ResponseOutput");
  if (!call.Allows(response, output, name, shape)) return call.Misused();
  if (dims != 1) call.triton().Problem("an output must have one dimension");
  *output = call.triton().New<TRITONBACKEND_Output>();
  (*output)->response = response;
  (*output)->name = name;
  (*output)->type = type;
  (*output)->elements = shape[0];
  response->outputs.push_back(*output);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** buffer,
                                               uint64_t bytes, TRITONSERVER_MemoryType* type,
                                               int64_t* type_id) {
  AbiCall call("OutputBuffer");
  if (!call.Allows(output, buffer, type, type_id)) return call.Misused();
  TRITONBACKEND_ResponseFactory* const factory = output->response->factory;
  const seq2seq::FakeFaults& faults = factory->request->data.faults;
  const int number = factory->buffers_given++;
  if (faults.fail_output_buffer.contains(number)) return call.Fail("no output buffer");
  if (output->has_buffer) call.triton().Problem("OutputBuffer twice");
  if (bytes != static_cast<uint64_t>(output->elements) * 4) {
    call.triton().Problem("OutputBuffer of another size than the shape's");
  }
  output->bytes.resize(bytes);
  output->has_buffer = true;
  *buffer = bytes == 0 ? nullptr : output->bytes.data();
  const bool gpu = faults.gpu_output_buffer.contains(number);
  *type = gpu ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU;
  *type_id = gpu ? 3 : 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetStringParameter(TRITONBACKEND_Response* response,
                                                             const char* name, const char* value) {
  AbiCall call("ResponseSetStringParameter");
  if (!call.Allows(response, name, value)) return call.Misused();
  response->parameters[name] = std::string(value);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response* response,
                                                          const char* name, int64_t value) {
  AbiCall call("ResponseSetIntParameter");
  if (!call.Allows(response, name)) return call.Misused();
  response->parameters[name] = value;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response, uint32_t flags,
                                               TRITONSERVER_Error* error) {
  std::shared_ptr<seq2seq::FakeCall> client;
  bool blocks = false;
  FakeResponse record;
  {
    AbiCall call("ResponseSend");
    if (!call.Allows(response)) return call.Misused();
    response->alive = false;
    TRITONBACKEND_ResponseFactory* const factory = response->factory;
    if (!call.Allows(factory) || (error != nullptr && !call.Allows(error))) return call.Misused();
    const seq2seq::FakeFaults& faults = factory->request->data.faults;
    const int number = factory->sends;
    CountSend(call, factory, flags);
    if (error == nullptr) record = Record(call, *response);  // of an error the text alone arrives
    record.final = flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL;
    record.called_ns = seq2seq::SteadyClock().NowNs();
    if (error != nullptr) {
      record.error_code = error->code;
      record.error_text = error->text;
      if (!record.final) call.triton().Problem("an error was sent without FINAL");
    }
    if (faults.fail_send.contains(number)) return call.Fail("a response is not sent");
    blocks = faults.block_send.contains(number);
    client = factory->request->call;
  }
  // A real client's socket blocks its own send alone.
  client->OnSendBegun(blocks);
  client->OnResponse(std::move(record));
  client->OnReturned();
  return nullptr;
}

}  // extern "C"
