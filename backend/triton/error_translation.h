// The one place where the backend's errors become Triton's, and Triton's the backend's.
#ifndef SEQ2SEQ_BACKEND_TRITON_ERROR_TRANSLATION_H_
#define SEQ2SEQ_BACKEND_TRITON_ERROR_TRANSLATION_H_

#include "backend/core/status.h"
#include "backend/triton/triton_abi.h"
#include "backend/triton/triton_handles.h"

namespace seq2seq {

// The error as clients see it: Triton's code, and the text `CODE: message`, because gRPC streams
// carry only the text and HTTP says 400 for everything.
ErrorHandle ToTriton(const Error& error);

// What a failed Triton call said. Takes `error`, which is not null.
Error TakeError(TRITONSERVER_Error* error);

// Of any Triton call: OK for null, else the error, taken.
[[nodiscard]] Status ToStatus(TRITONSERVER_Error* error);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_ERROR_TRANSLATION_H_
