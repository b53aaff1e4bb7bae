// An engine of this project over a checkpoint, for the benchmark's driver:
//
//   engine_worker CHECKPOINT ENGINE DTYPE
//
// ENGINE is cpu or cuda (the first device), DTYPE float32, float16 or bfloat16. batch_measuring.h
// says what it reads and writes.
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "backend/core/dtype.h"
#include "backend/core/status.h"
#include "backend/engine/built_in_engines.h"
#include "backend/engine/engine_factory.h"
#include "backend/model/checkpoint.h"
#include "benchmarks/engine/batch_measuring.h"

namespace seq2seq {
namespace {

Status Serve(const std::string& folder, const std::string& engine, const std::string& dtype) {
  EngineOptions options;
  if (engine != "cpu" && engine != "cuda") return InvalidArgument("unknown engine " + engine);
  options.kind = engine == "cuda" ? EngineKind::kCuda : EngineKind::kCpu;
  options.weights_dtype = ParseDType(dtype);
  if (!options.weights_dtype) return InvalidArgument("unknown dtype " + dtype);
  SEQ2SEQ_ASSIGN_OR_RETURN(const std::shared_ptr<const Checkpoint> checkpoint,
                           Checkpoint::Load(folder));
  const std::unique_ptr<EngineFactory> factory = MakeBuiltInEngines(checkpoint);
  MeasureBatches(*factory, options, checkpoint->generation().decoder_start_token_id, std::cin,
                 std::cout);
  return OkStatus();
}

}  // namespace
}  // namespace seq2seq

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: engine_worker CHECKPOINT ENGINE DTYPE\n");
    return 2;
  }
  const seq2seq::Status status = seq2seq::Serve(argv[1], argv[2], argv[3]);
  if (status) return 0;
  std::fprintf(stderr, "engine_worker: %s\n", status.error().message.c_str());
  return 1;
}
