// Takes a Triton request apart: tensors to host memory, parameters to options, outputs asked for.
#ifndef SEQ2SEQ_BACKEND_TRITON_REQUEST_READER_H_
#define SEQ2SEQ_BACKEND_TRITON_REQUEST_READER_H_

#include <cstdint>

#include "backend/core/status.h"
#include "backend/request/raw_request.h"
#include "backend/triton/instance_account.h"
#include "backend/triton/response_writer.h"
#include "backend/triton/triton_abi.h"

namespace seq2seq {

struct ReadRequest {
  RawRequest raw;
  RequestedOutputs outputs;
};

// Copies what `request` holds; nothing of Triton's is kept. `account` reaches device memory.
// Whatever is strange about the request is kInvalidArgument, or kUnsupported for memory out of
// reach.
[[nodiscard]] Result<ReadRequest> ReadTritonRequest(TRITONBACKEND_Request* request,
                                                    InstanceAccount& account, int64_t arrival_ns);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_REQUEST_READER_H_
