#!/bin/bash
# Builds the CUDA engine's tests and benchmarks on a machine that has a GPU, nvcc and g++ but no Bazel,
# and runs the tests.
#
#   backend/cuda/gpu_tests.sh [checkpoint folder with an expected.json ...]
#
# Environment: BUILD_DIR (default /tmp/seq2seq_gpu), ARCH (default sm_90), JSON_INCLUDE (a folder
# with nlohmann/json.hpp, unless the compiler finds it), CUDA_HOME, SANITIZE=1 (compute-sanitizer on
# the kernel tests too).
set -euo pipefail
cd "$(dirname "$0")/../.."

build="${BUILD_DIR:-/tmp/seq2seq_gpu}"
arch="${ARCH:-sm_90}"
cuda="${CUDA_HOME:-/usr/local/cuda}"
jobs="$(nproc)"
mkdir -p "$build"
host_flags="-std=c++23 -O2 -Wall -Wextra -I. -I$cuda/include ${JSON_INCLUDE:+-I$JSON_INCLUDE}"

kernels=(
  projection projection_few projection_wide decode_attention encoder_attention step_state
  choose_token token_ops convert
)
hosts=(
  backend/core/status.cc backend/engine/sampling.cc
  backend/model/{checkpoint,file_mapping,generation_config,json_object,model_spec}.cc
  backend/model/{safetensors,t5_weights,tensor_store}.cc
  backend/cuda/{position_bias,cublas_lt,token_matmul,device_weights}.cc
  backend/cuda/{cuda_encoder,cuda_decoder,cuda_engine,cuda_memory_copier}.cc
  backend/testing/{batch_runner,synthetic_checkpoint}.cc
)
tests=(
  backend/kernels/{projection,attention,token_ops}_gpu_test.cc
  backend/cuda/{choose_token,cuda_engine_parity}_gpu_test.cc
  benchmarks/engine/cuda_engine_benchmark.cc
  benchmarks/kernels/decode_kernels_benchmark.cc
)

object() { echo "$build/$(echo "$1" | tr / _).o"; }
{
  for kernel in "${kernels[@]}"; do
    source="backend/kernels/$kernel.cu"
    echo "$cuda/bin/nvcc -std=c++20 -arch=$arch -O3 -lineinfo -I. -c $source -o $(object "$source")"
  done
  for source in "${hosts[@]}" "${tests[@]}"; do
    echo "g++ $host_flags -c $source -o $(object "$source")"
  done
} | xargs -P "$jobs" -I{} sh -c '{} || exit 255'

objects=()
for source in "${kernels[@]/#/backend/kernels/}"; do objects+=("$(object "$source.cu")"); done
for source in "${hosts[@]}"; do objects+=("$(object "$source")"); done
for source in "${tests[@]}"; do
  name="$(basename "$source" .cc)"
  g++ "$(object "$source")" "${objects[@]}" -o "$build/$name" \
    -L"$cuda/lib64" -lcudart_static -ldl -lpthread -lrt &
done
wait

failed=0
for test in {projection,attention,token_ops,choose_token}_gpu_test; do
  echo "== $test"
  "$build/$test" || failed=1
  if [[ "${SANITIZE:-0}" == 1 ]]; then
    for tool in memcheck racecheck; do
      echo "== $test under $tool"
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/$test" | tail -5 || failed=1
    done
  fi
done
if (($# > 0)); then
  echo "== cuda_engine_parity_gpu_test"
  "$build/cuda_engine_parity_gpu_test" "$@" || failed=1
fi
exit "$failed"
