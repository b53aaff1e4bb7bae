"""The shared library that a Triton server loads."""

load("@rules_cc//cc:defs.bzl", "cc_binary")
load("//bazel:cuda.bzl", "if_cuda")

def triton_library(name, environment, **kwargs):
    """A libtriton_seq2seq.so that shows its entry points alone.

    The C++ runtime is linked statically, so that the server's own does not matter; OpenBLAS is found
    beside the library. TRITON* symbols stay undefined: the server defines them.

    Args:
        name: the file's name
        environment: the target that defines MakeBackendEnvironment()
        **kwargs: passed to cc_binary
    """
    cc_binary(
        name = name,
        additional_linker_inputs = ["//backend/triton:exports.lds"],
        linkopts = [
            "-Wl,--version-script=$(execpath //backend/triton:exports.lds)",
            "-Wl,-rpath,$$ORIGIN",
            "-static-libgcc",
            "-l:libstdc++.a",
        ],
        linkshared = True,
        deps = [
            environment,
            "//backend/triton:api",
        ] + if_cuda(["//backend/kernels:rms_norm"]),
        **kwargs
    )
