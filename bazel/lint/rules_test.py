"""Each of the project's rules finds what it is for, where it is for, and nothing beside it."""

import sys

import pytest

from bazel.lint import rules

MARKER = "TO" + "DO"
SKIP = "GTEST_" + "SKIP"
PATH = "/ro" + "ot/x"
BROKEN = [
    ("docs/a.md", f"see {PATH}"),
    ("backend/core/a.h", f"// {MARKER}: later"),
    ("backend/core/a_test.cc", f"{SKIP}();"),
    ("tests/server/a_test.py", "@pytest.mark." + "skip"),
    ("backend/BUILD.bazel", 'tags = ["' + 'manual"],'),
    ("backend/cuda/a.cc", "cudaDeviceSynchronize();"),
    ("backend/cuda/a.cc", "cudaMemcpy(to, from, size, kind);"),
    ("backend/kernels/a.cu", "Kernel<<<blocks, threads>>>(x);"),
    ("backend/kernels/a.cu", "Kernel<<<blocks, threads, 0>>>(x);"),
    ("backend/kernels/a.cu", "Kernel<<<blocks, threads, bytes, 0>>>(x);"),
    ("backend/cuda/a.cc", "cudaMemcpyAsync(to, from, size, kind, nullptr);"),
    ("backend/cuda/a.cc", "cudaMemcpyToSymbol(symbol, from, size);"),
    ("backend/cuda/a.cc", "cudaStreamCreate(&stream);"),
    ("backend/cuda/a.cc", "cudaDeviceReset();"),
    ("bazel/cuda.bzl", '"--default-' + 'stream=per-thread",'),
    ("backend/cpu/a.h", "#define CUDA_API_PER_THREAD_DEFAULT_" + "STREAM"),
]
FINE = [
    ("docs/a.md", "network/root/x and ./work/x"),
    ("requirements_lock.txt", PATH),
    ("README.md", f"the {MARKER} list"),
    ("backend/kernels/a_gpu_test.cc", "cudaDeviceSynchronize();"),
    ("tools/a.cc", "cudaDeviceSynchronize();"),
    ("backend/cuda/a.cc", "cudaMemcpyAsync(to, from, size, cudaMemcpyKind, stream);"),
    ("backend/kernels/a.cu", "Kernel<<<blocks, threads, 0, stream>>>(x);"),
    ("backend/cuda/a.cc", "cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);"),
    ("backend/cuda/a.cc", "cudaMemsetAsync(to, 0, bytes, stream);"),
]


@pytest.fixture(autouse=True)
def known_hosts(monkeypatch):
    """The hosts of the machine that runs the test are none of its business."""
    monkeypatch.setattr(rules, "registry_hosts", lambda _root: ["packages.example.org"])


@pytest.mark.parametrize(("name", "line"), BROKEN)
def test_finds(tmp_path, name, line):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("first\n" + line + "\n")
    found = rules.check(tmp_path, [name])
    assert len(found) == 1
    assert found[0].startswith(f"{name}:2: ")


@pytest.mark.parametrize(("name", "line"), FINE)
def test_passes(tmp_path, name, line):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(line + "\n")
    assert rules.check(tmp_path, [name]) == []


def test_names_the_host_of_a_registry(tmp_path):
    (tmp_path / "a.md").write_text("from packages.example.org\nfrom packagesXexample.org\n")
    found = rules.check(tmp_path, ["a.md"])
    assert [line.split(": ")[0] for line in found] == ["a.md:1"]


def test_names_a_large_file(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\0" * (rules.LARGEST_FILE + 1))
    assert "a.bin: 2000001 bytes" in rules.check(tmp_path, ["a.bin"])[0]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-p", "no:cacheprovider"]))
