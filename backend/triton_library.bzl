"""The shared library that a Triton server loads."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

def triton_library(name, environment, **kwargs):
    """A libtriton_seq2seq.so that shows its entry points alone.

    The C++ runtime is linked statically, so that the server's own does not matter. TRITON* symbols stay
    undefined: the server defines them.

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
            "-static-libgcc",
            "-l:libstdc++.a",
        ],
        linkshared = True,
        deps = [
            environment,
            "//backend/triton:api",
        ],
        **kwargs
    )
