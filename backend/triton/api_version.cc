#include "backend/triton/api_version.h"

#include "backend/core/format.h"

namespace seq2seq {

Status CheckApiVersion(uint32_t server_major, uint32_t server_minor) {
  if (server_major == kBackendApiMajor && server_minor >= kBackendApiMinor) return OkStatus();
  return Unsupported(
      Format("this server speaks backend API {}.{}, the seq2seq backend needs {}.{} or a later "
             "{}.x: use a server of release 24.04 or later with that major version",
             server_major, server_minor, kBackendApiMajor, kBackendApiMinor, kBackendApiMajor));
}

}  // namespace seq2seq
