#!/usr/bin/env bash
# Builds the kernels and those of their tests that are written with GoogleTest, with the nvcc on PATH, and
# runs them, on a GPU machine without Bazel (backend/cuda/gpu_tests.sh runs the others):
#   backend/kernels/gpu_tests.sh GOOGLETEST [ARCH]
# GOOGLETEST is a folder with GoogleTest's sources (googletest/ and googlemock/ in it); ARCH defaults to
# native. Objects go to a temporary folder.
set -euo pipefail

googletest="$(cd "${1:?usage: $0 GOOGLETEST [ARCH]}" && pwd)/googletest"
arch="${2:-native}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT

g++ -std=c++20 -O1 -c -o "$out/gtest.o" -I"$googletest/include" -I"$googletest" "$googletest/src/gtest-all.cc"
g++ -std=c++20 -O1 -c -o "$out/main.o" -I"$googletest/include" "$googletest/src/gtest_main.cc"
printf '%s\n' backend/kernels/*.cu | xargs -P "$(nproc)" -I{} sh -c \
  'nvcc -std=c++20 -O3 -arch="$1" -I. -c -o "$2/$(basename "$3" .cu).kernel.o" "$3" || exit 255' sh "$arch" "$out" {}
failed=0
for test in $(grep -l gtest/gtest.h backend/kernels/*_test.cc); do
  program="$out/$(basename "$test" .cc)"
  nvcc -std=c++20 -O1 -I. -I"$googletest/include" -o "$program" "$test" "$out"/*.o
  "$program" --gtest_brief=1 || failed=1
done
exit "$failed"
