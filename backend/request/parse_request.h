// Turns what a client sent into a Request, or says exactly what is wrong with it.
#ifndef SEQ2SEQ_BACKEND_REQUEST_PARSE_REQUEST_H_
#define SEQ2SEQ_BACKEND_REQUEST_PARSE_REQUEST_H_

#include <cstdint>

#include "backend/core/status.h"
#include "backend/request/raw_request.h"
#include "backend/request/request.h"
#include "backend/request/request_policy.h"

namespace seq2seq {

// Validates `raw` against `policy`. kInvalidArgument names the option or input, its value and its
// allowed range. `drawn_seed` becomes the sampling seed of a request that sets none. Pure function.
[[nodiscard]] Result<Request> ParseRequest(RawRequest raw, const RequestPolicy& policy,
                                           uint64_t drawn_seed);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_REQUEST_PARSE_REQUEST_H_
