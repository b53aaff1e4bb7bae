#!/bin/bash
# The library shows nothing but entry points, and needs of Triton nothing that the server lacks.
#   symbols_test.sh LIBRARY SERVER_EXPORTS
set -euo pipefail

library=$1
server_exports=$2
failed=0

fail() {
  echo "FAILED: $1" >&2
  sed 's/^/  /' >&2
  failed=1
}

shown=$(nm -D --defined-only "$library" | awk '{print $NF}' | sort -u)
entry_points="TRITONBACKEND_Finalize
TRITONBACKEND_GetBackendAttribute
TRITONBACKEND_Initialize
TRITONBACKEND_ModelFinalize
TRITONBACKEND_ModelInitialize
TRITONBACKEND_ModelInstanceExecute
TRITONBACKEND_ModelInstanceFinalize
TRITONBACKEND_ModelInstanceInitialize"
if [[ $shown != "$entry_points" ]]; then
  fail "other symbols are shown than the entry points:" <<<"$shown"
fi

needed=$(nm -D --undefined-only "$library" | awk '{print $NF}' | sort -u)
of_triton=$(grep '^TRITON' <<<"$needed" || true)
if [[ -z $of_triton ]]; then
  fail "nothing of Triton is needed, so this is not the backend:" <<<"$needed"
fi
missing=$(LC_ALL=C comm -23 <(LC_ALL=C sort -u <<<"$of_triton") <(LC_ALL=C sort -u "$server_exports"))
if [[ -n $missing ]]; then
  fail "the server does not export:" <<<"$missing"
fi

ours=$(grep 'seq2seq' <<<"$needed" || true)
if [[ -n $ours ]]; then
  fail "our own symbols are undefined:" <<<"$ours"
fi

loaded=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
surplus=$(grep -E 'libstdc\+\+|libcudart|libtritonserver' <<<"$loaded" || true)
if [[ -n $surplus ]]; then
  fail "libraries must not be loaded that are linked statically or are the server's:" <<<"$surplus"
fi

exit $failed
