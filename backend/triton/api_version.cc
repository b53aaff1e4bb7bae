#include "backend/triton/api_version.h"

#include "backend/triton/str_cat.h"

namespace seq2seq {

Status CheckApiVersion(uint32_t server_major, uint32_t server_minor) {
  if (server_major == kBackendApiMajor && server_minor >= kBackendApiMinor) return OkStatus();
  return Unsupported(StrCat("this server speaks backend API ", server_major, ".", server_minor,
                            ", the seq2seq backend needs ", kBackendApiMajor, ".", kBackendApiMinor,
                            " or a later ", kBackendApiMajor,
                            ".x: use a server of release 24.04 or later with that major version"));
}

}  // namespace seq2seq
