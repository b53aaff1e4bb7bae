#!/usr/bin/env bash
# Runs the server tests out of a bundle (make_bundle.sh), on GPU instances:
#   run.sh --unpack                            only unpacks
#   run.sh RESULTS [FILE...] [-- ARGUMENT...]  unpacks unless that is done, runs all files or these
# ARGUMENTs go to pytest. RESULTS gets server_tests.log and a JUnit file for each test file; the last line
# counts the tests. The machine has an NVIDIA GPU with its driver, cuBLASLt of the CUDA toolkit 12 or 13, xz, and
# python3 with numpy, grpcio, pytest and tokenizers.
#
# Environment: SEQ2SEQ_INSTANCE_KIND (default KIND_GPU), JOBS, test files at once (default 4).
set -euo pipefail
bundle="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

# Read the free memory of the device, or the time: nothing runs beside them.
alone=(tests/server/gpu_memory_test.py tests/server/gpu_instances_test.py)

usage() {
  printf 'usage: %s --unpack | RESULTS [FILE...] [-- ARGUMENT...]\n\n' "$0"
  sed -n '2,/^set /s/^# \?//p' "${BASH_SOURCE[0]}"
}

# fail MESSAGE
fail() {
  printf '%s: %s\n' "$0" "$1" >&2
  exit 2
}

# unpack_one ARCHIVE: under its own name only when it is whole.
unpack_one() {
  local scratch="$bundle/$1.part"
  mkdir -p "$scratch"
  tar --extract --xz --file="$bundle/$1.tar.xz" --directory="$scratch"
  mv "$scratch/$1" "$bundle/$1"
  rmdir "$scratch"
}

unpack() {
  local archive jobs=()
  for archive in server packages tree; do
    [[ ! -e "$bundle/$archive" ]] || continue
    [[ -e "$bundle/$archive.tar.xz" ]] ||
      fail "$archive.tar.xz is not beside it: make a bundle with tests/gpu/make_bundle.sh FOLDER, run FOLDER/run.sh"
    unpack_one "$archive" &
    jobs+=($!)
  done
  for job in ${jobs[@]+"${jobs[@]}"}; do wait "$job" || fail "an archive could not be unpacked"; done
}

# Of what no test can do without, before each of them fails over it.
check_machine() {
  local module
  for module in numpy grpc pytest tokenizers; do
    python3 -B -c "import $module" 2>/dev/null || fail "python3 has no module $module (grpc is pip's grpcio)"
  done
  [[ "$SEQ2SEQ_INSTANCE_KIND" != KIND_GPU ]] ||
    python3 -B -c 'import ctypes, sys; sys.exit(ctypes.CDLL("libcuda.so.1").cuInit(0))' 2>/dev/null ||
    fail "no GPU, or no driver for it; with SEQ2SEQ_INSTANCE_KIND=KIND_CPU instances run on the CPU"
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

case "${1:-}" in
  --unpack)
    unpack
    exit 0
    ;;
  -h | --help)
    usage
    exit 0
    ;;
  "" | -*)
    usage >&2
    exit 2
    ;;
esac
export SEQ2SEQ_INSTANCE_KIND="${SEQ2SEQ_INSTANCE_KIND:-KIND_GPU}"
check_machine
unpack
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
for file in "${files[@]}"; do
  [[ -e "$file" ]] || fail "$file: no such test file; they are named from the repository's root"
done
export results bundle
export SEQ2SEQ_SERVER_DIR="$bundle/server" SEQ2SEQ_BACKEND_DIR="$bundle/tree/backends"
export SEQ2SEQ_TEST_BACKEND_DIR="$bundle/tree/test_backends"
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
