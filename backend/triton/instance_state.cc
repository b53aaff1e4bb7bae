#include "backend/triton/instance_state.h"

#include <utility>
#include <vector>

#include "backend/core/format.h"
#include "backend/engine/engine_factory.h"
#include "backend/request/parse_request.h"
#include "backend/request/request.h"
#include "backend/triton/error_translation.h"
#include "backend/triton/instance_options.h"
#include "backend/triton/request_reader.h"
#include "backend/triton/response_stream.h"
#include "backend/triton/triton_log.h"

namespace seq2seq {
namespace {

StreamSettings SettingsOf(const Request& request, const RequestedOutputs& outputs) {
  StreamSettings settings;
  settings.outputs = outputs;
  settings.max_new_tokens = request.max_new_tokens;
  settings.stream = request.stream;
  settings.interval_ns = request.response_interval_ns;
  settings.return_logprobs = request.sampling.return_logprobs;
  settings.prompt_tokens = static_cast<int64_t>(request.source_ids.size());
  if (request.sampling.do_sample) settings.seed = request.sampling.seed;
  settings.deadline_ns = request.deadline_ns;
  return settings;
}

}  // namespace

Result<std::unique_ptr<InstanceState>> InstanceState::Create(TRITONBACKEND_ModelInstance* instance,
                                                             ModelState* model) {
  const char* name = nullptr;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelInstanceName(instance, &name)));
  const InstanceLabels labels{model->identity().name, model->identity().version, name};
  std::unique_ptr<InstanceState> state(new InstanceState(model, labels));
  SEQ2SEQ_RETURN_IF_ERROR(state->CreateEngine(instance));
  InstanceDrive& drive = *state->drive_;
  state->account_ =
      std::make_shared<InstanceAccount>(instance, drive.engine->memory_copier(), drive.metrics);
  drive.account = state->account_;
  drive.scheduler = std::make_unique<Scheduler>(SchedulerContext{.engine = drive.engine.get(),
                                                                 .notifier = &drive.notifier,
                                                                 .queue = &model->queue(),
                                                                 .clock = &model->clock(),
                                                                 .observer = drive.metrics.get()});
  return state;
}

InstanceState::InstanceState(ModelState* model, const InstanceLabels& labels)
    : model_(model), drive_(std::make_unique<InstanceDrive>()) {
  drive_->metrics =
      std::make_shared<InstanceMetrics>(model->backend().metrics(), labels, model->queue_gauge());
}

InstanceState::~InstanceState() {
  if (drive_->scheduler == nullptr) return;  // it never served
  model_->retired_drives().Add(std::move(drive_));
  account_->DetachInstance();
}

Status InstanceState::CreateEngine(TRITONBACKEND_ModelInstance* instance) {
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
  int32_t device_id = 0;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelInstanceKind(instance, &kind)));
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelInstanceDeviceId(instance, &device_id)));
  const EngineOptions options = MakeEngineOptions(model_->options(), model_->policy(),
                                                  model_->instance_groups(), kind, device_id);
  Result<std::unique_ptr<Engine>> engine =
      model_->engine_factory().Create(options, &drive_->notifier);
  if (!engine && options.kind == EngineKind::kCuda &&
      engine.error().code == ErrorCode::kUnsupported) {
    const bool asked = model_->options().engine == EngineChoice::kCuda;
    return MakeError(engine.error().code,
                     Format("{}, but no CUDA engine can run it: {}; on the CPU it runs with {}",
                            asked ? "parameter 'engine' is 'cuda'" : "the instance is KIND_GPU",
                            engine.error().message, asked ? "engine 'cpu'" : "KIND_CPU"));
  }
  if (!engine) return std::unexpected(std::move(engine).error());
  drive_->engine = *std::move(engine);
  const EngineInfo& info = drive_->engine->info();
  LogInfo(
      Format("model '{}' version {}: an instance runs on the {} engine with {} slots and {} KV "
             "blocks of {} tokens",
             model_->identity().name, model_->identity().version,
             options.kind == EngineKind::kCpu ? "CPU" : "CUDA", info.max_slots, info.total_blocks,
             info.block_tokens));
  return OkStatus();
}

Status InstanceState::Execute(std::span<TRITONBACKEND_Request* const> requests) {
  const int64_t arrival_ns = model_->clock().NowNs();
  // Everything that can fail for want of a response factory comes before the first request is
  // taken.
  std::vector<std::shared_ptr<OutgoingStream>> streams;
  streams.reserve(requests.size());
  for (TRITONBACKEND_Request* request : requests) {
    SEQ2SEQ_ASSIGN_OR_RETURN(auto writer, ResponseWriter::Open(request, account_));
    streams.push_back(std::make_shared<OutgoingStream>(std::move(writer), arrival_ns));
  }
  for (size_t i = 0; i < requests.size(); ++i) Accept(requests[i], streams[i], arrival_ns);
  return OkStatus();
}

void InstanceState::Accept(TRITONBACKEND_Request* request,
                           const std::shared_ptr<OutgoingStream>& stream, int64_t arrival_ns) {
  try {
    std::unique_ptr<TokenSink> sink = std::make_unique<ResponseStream>(stream, &model_->sender());
    const Status queued = Enqueue(request, *stream, sink, arrival_ns);
    if (!queued) sink->Fail(queued.error());
  } catch (...) {
    // Out of memory for this request; if its sink was made, that has failed it already.
    model_->sender().Fail(stream, Error{});
  }
}

Status InstanceState::Enqueue(TRITONBACKEND_Request* request, OutgoingStream& stream,
                              std::unique_ptr<TokenSink>& sink, int64_t arrival_ns) {
  SEQ2SEQ_ASSIGN_OR_RETURN(ReadRequest read, ReadTritonRequest(request, *account_, arrival_ns));
  auto pending = std::make_unique<PendingRequest>();
  SEQ2SEQ_ASSIGN_OR_RETURN(pending->request, ParseRequest(std::move(read.raw), model_->policy(),
                                                          model_->seeds().Draw()));
  stream.Configure(SettingsOf(pending->request, read.outputs));
  pending->sink = std::move(sink);
  Status pushed = model_->queue().Push(pending);
  if (!pushed) {
    sink = std::move(pending->sink);
    return pushed;
  }
  model_->queue_gauge()->Update();
  return OkStatus();
}

}  // namespace seq2seq
