#!/usr/bin/env bash
# Runs the server tests out of a bundle (make_bundle.sh), on GPU instances:
#   run.sh --unpack                            only unpacks
#   run.sh RESULTS [FILE...] [-- ARGUMENT...]  unpacks unless that is done, runs all files or these
# ARGUMENTs go to pytest. RESULTS gets server_tests.log and a JUnit file for each test file; the last line
# counts the tests. The machine has python3 with numpy, grpcio, pytest and tokenizers.
#
# Environment: SEQ2SEQ_INSTANCE_KIND (default KIND_GPU), JOBS, test files at once (default 4).
set -euo pipefail
bundle="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

# Read the free memory of the device, or the time: nothing runs beside them.
alone=(tests/server/gpu_memory_test.py tests/server/gpu_instances_test.py)

unpack() {
  local archive
  for archive in server packages tree; do
    [[ -e "$bundle/$archive" ]] || tar --extract --xz --file="$bundle/$archive.tar.xz" --directory="$bundle" &
  done
  wait
}

# run_file FILE ARGUMENTS...
run_file() {
  local name status=0
  name="$(basename "$1" .py)"
  python3 -B -m pytest -p no:cacheprovider --import-mode=importlib --verbose --durations=3 -rP \
    --junitxml="$results/$name.xml" "$@" >"$results/$name.log" 2>&1 || status=$?
  tail -n 1 "$results/$name.log"
  return "$status"
}

unpack
[[ "${1:?usage: $0 --unpack | RESULTS [FILE...] [-- ARGUMENT...]}" != --unpack ]] || exit 0
mkdir -p "$1"
results="$(cd "$1" && pwd)"
shift
rm -f "$results"/*_test.{log,xml}
cd "$bundle/tree"
files=()
while (($#)) && [[ "$1" != -- ]]; do
  files+=("$1")
  shift
done
if ((${#files[@]} == 0)); then
  files=(tests/server/*_test.py models/g2p_t5/{quality,readme,gpu_quality}_test.py)
fi
export results bundle
export SEQ2SEQ_SERVER_DIR="$bundle/server" SEQ2SEQ_BACKEND_DIR="$bundle/tree/backends"
export SEQ2SEQ_TEST_BACKEND_DIR="$bundle/tree/test_backends"
export SEQ2SEQ_INSTANCE_KIND="${SEQ2SEQ_INSTANCE_KIND:-KIND_GPU}"
export PYTHONPATH="$bundle/packages:$bundle/tree" PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
export -f run_file

together=()
last=()
for file in "${files[@]}"; do
  if [[ " ${alone[*]} " == *" $file "* ]]; then last+=("$file"); else together+=("$file"); fi
done
failed=0
printf '%s\n' "${together[@]}" |
  xargs --no-run-if-empty --max-procs="${JOBS:-4}" -I{} bash -c 'run_file "$@"' bash {} "${@:2}" || failed=1
for file in "${last[@]}"; do run_file "$file" "${@:2}" || failed=1; done

for file in "${files[@]}"; do
  printf '\n==== %s\n' "$file"
  cat "$results/$(basename "$file" .py).log"
done | sed "s,$results,RESULTS,g; s,$bundle,BUNDLE,g; s, -- /.*/python.*,," >"$results/server_tests.log"
python3 -B .ci/count_tests.py "$results" | tee -a "$results/server_tests.log"
exit "$failed"
