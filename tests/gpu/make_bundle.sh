#!/usr/bin/env bash
# Makes what runs the server tests on a machine with a GPU that has neither Bazel nor a network:
#   tests/gpu/make_bundle.sh FOLDER
# FOLDER gets three archives, some 45 MB together, and run.sh, which does the rest over there. The server's
# and the packages' archives are kept if they are there: they change with their locks only.
#
# Environment: PYTHON_VERSION, of the other machine (default 3.12).
set -euo pipefail
if (($# != 1)) || [[ "$1" == -* ]]; then
  sed -n '2,/^set /s/^# \?//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
mkdir -p "$1"
folder="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# The only output of a target, as an absolute path.
output_of() {
  printf '%s/%s\n' "$execution_root" "$(./bazelw cquery --output=files "$1" 2>/dev/null)"
}

# pack NAME FOLDER TAR_ARGUMENTS...: an archive whose files lie under NAME/.
pack() {
  # The two backends are nearly the same: with a large window the second one costs little.
  tar --create --dereference --sort=name --transform="s,^,$1/," --directory="$2" "${@:3}" | xz -9 >"$scratch/archive"
  mv "$scratch/archive" "$folder/$1.tar.xz"
}

./bazelw build @tritonserver//:server //backend:backends //backend/testing:backends
execution_root="$(./bazelw info execution_root 2>/dev/null)"

if [[ ! -e "$folder/server.tar.xz" ]]; then
  binary="$(output_of @tritonserver//:bin)"
  server="${binary%/pytriton/*}"
  # Of the libraries beside it those that it is linked with: the others are for Python models.
  ldd "$binary" | awk -v under="$server/" 'index($3, under) == 1 { print substr($3, length(under) + 1) }' \
    >"$scratch/files"
  printf '%s\n' "${binary#"$server"/}" >>"$scratch/files"
  pack server "$server" --files-from="$scratch/files"
fi

if [[ ! -e "$folder/packages.tar.xz" ]]; then
  # The rest (numpy, grpcio, pytest, tokenizers) comes with the machine.
  awk '/^[a-z]/ { kept = /^(ml-dtypes|protobuf|python-rapidjson|tritonclient)==/ } kept' requirements_lock.txt \
    >"$scratch/requirements.txt"
  python3.11 -m pip download --quiet --no-deps --require-hashes --only-binary=:all: --dest="$scratch/wheels" \
    --python-version="${PYTHON_VERSION:-3.12}" --platform=manylinux_2_28_x86_64 --platform=manylinux2014_x86_64 \
    --requirement="$scratch/requirements.txt"
  for wheel in "$scratch"/wheels/*.whl; do python3.11 -m zipfile -e "$wheel" "$scratch/packages"; done
  pack packages "$scratch/packages" .
fi

mkdir "$scratch/tree"
git ls-files -z --cached --others --exclude-standard tests tools models .ci pyproject.toml README.md |
  xargs -0 cp --parents --target-directory="$scratch/tree"
cp -R "$(output_of //backend:backends)" "$scratch/tree/backends"
cp -R "$(output_of //backend/testing:backends)" "$scratch/tree/test_backends"
pack tree "$scratch/tree" .
cp tests/gpu/run.sh "$folder/"
du --bytes --summarize "$folder"
