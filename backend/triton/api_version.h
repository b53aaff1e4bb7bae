// Which servers this backend can live in.
#ifndef SEQ2SEQ_BACKEND_TRITON_API_VERSION_H_
#define SEQ2SEQ_BACKEND_TRITON_API_VERSION_H_

#include <cstdint>

#include "backend/core/status.h"

namespace seq2seq {

// The backend ABI that triton_abi.h declares. The newest call that is used,
// ResponseFactoryIsCancelled, came with 1.15; double request parameters with 1.19.
inline constexpr uint32_t kBackendApiMajor = 1;
inline constexpr uint32_t kBackendApiMinor = 19;

// kUnsupported unless a server with this ABI has the same major version and at least our minor.
[[nodiscard]] Status CheckApiVersion(uint32_t server_major, uint32_t server_minor);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_API_VERSION_H_
