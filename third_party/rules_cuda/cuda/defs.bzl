"""The public names."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_test")
load("//cuda/private:cuda_library.bzl", _cuda_library = "cuda_library")

cuda_library = _cuda_library
cuda_objects = _cuda_library

def requires_cuda():
    """For target_compatible_with: satisfied where CUDA is enabled and a toolkit was found."""
    return select({
        Label("//cuda:is_enabled"): [],
        "//conditions:default": [Label("//cuda:rules_are_enabled")],
    }) + select({
        Label("//cuda:is_valid_toolchain_found"): [],
        "//conditions:default": [Label("//cuda:valid_toolchain_is_configured")],
    })

def _program(rule, name, srcs, deps, copts, host_copts, archs, **kwargs):
    library = "_%s_cuda" % name
    cuda_library(
        name = library,
        testonly = kwargs.get("testonly", rule == cc_test),
        srcs = srcs,
        archs = archs,
        copts = copts,
        host_copts = host_copts,
        target_compatible_with = kwargs.get("target_compatible_with", []),
        visibility = ["//visibility:private"],
        deps = deps,
        alwayslink = True,
    )
    rule(name = name, deps = [":" + library], **kwargs)

def cuda_binary(name, srcs = [], deps = [], copts = [], host_copts = [], archs = [], **kwargs):
    """A cc_binary over a cuda_library of the same sources."""
    _program(cc_binary, name, srcs, deps, copts, host_copts, archs, **kwargs)

def cuda_test(name, srcs = [], deps = [], copts = [], host_copts = [], archs = [], **kwargs):
    """A cc_test over a cuda_library of the same sources."""
    _program(cc_test, name, srcs, deps, copts, host_copts, archs, **kwargs)
