"""The extension that finds a CUDA toolkit and makes the repository @cuda of it."""

_HEADERS_ONLY = ["cub", "thrust", "no_cuda_runtime"]

_FOUND = """\
load("@rules_cc//cc:defs.bzl", "cc_library")
load("@bazel_skylib//rules:common_settings.bzl", "bool_setting")
load("@rules_cuda//cuda/private:toolchain.bzl", "cuda_toolchain")

package(default_visibility = ["//visibility:public"])

bool_setting(name = "valid_toolchain_found", build_setting_default = True)

cc_library(
    name = "headers",
    hdrs = glob(["toolkit/include/**"]),
    includes = ["toolkit/include", "toolkit/include/cccl"],
)

cc_library(
    name = "cuda_runtime_static",
    srcs = ["toolkit/lib64/libcudart_static.a"],
    linkopts = ["-ldl", "-lpthread", "-lrt"],
    deps = [":headers"],
)

cc_library(
    name = "cuda_runtime",
    srcs = glob(["toolkit/lib64/libcudart.so*"]),
    deps = [":headers"],
)

cc_library(name = "cuda", linkopts = ["-lcuda"], deps = [":headers"])

cc_library(name = "cublas", srcs = glob(["toolkit/lib64/libcublas*.so*"], allow_empty = True), deps = [":headers"])

[cc_library(name = name, deps = [":headers"]) for name in {headers_only}]

cuda_toolchain(
    name = "nvcc",
    files = glob(["toolkit/bin/**", "toolkit/nvvm/bin/**", "toolkit/nvvm/libdevice/**", "toolkit/include/**"]),
    nvcc = "toolkit/bin/nvcc",
)

toolchain(
    name = "toolchain",
    toolchain = ":nvcc",
    toolchain_type = "@rules_cuda//cuda:toolchain_type",
)
"""

_NOT_FOUND = """\
load("@rules_cc//cc:defs.bzl", "cc_library")
load("@bazel_skylib//rules:common_settings.bzl", "bool_setting")

package(default_visibility = ["//visibility:public"])

bool_setting(name = "valid_toolchain_found", build_setting_default = False)

[cc_library(name = name) for name in {headers_only} + ["cuda_runtime_static", "cuda_runtime", "cuda", "cublas"]]

toolchain(
    name = "toolchain",
    target_compatible_with = ["@platforms//:incompatible"],
    toolchain = ":cuda",
    toolchain_type = "@rules_cuda//cuda:toolchain_type",
)
"""

def _toolkit_path(ctx):
    """The first folder that holds bin/nvcc: the tag's, CUDA_PATH, beside ptxas, the customary one."""
    ptxas = ctx.which("ptxas")
    beside = str(ptxas.realpath.dirname.dirname) if ptxas else ""
    for path in [ctx.attr.toolkit_path, ctx.os.environ.get("CUDA_PATH", ""), beside, "/usr/local/cuda"]:
        if path and ctx.path(path + "/bin/nvcc").exists:
            return path
    return None

def _toolkit_impl(ctx):
    path = _toolkit_path(ctx)
    if path:
        ctx.symlink(path, "toolkit")
    ctx.file("BUILD.bazel", (_FOUND if path else _NOT_FOUND).format(headers_only = _HEADERS_ONLY))

_toolkit = repository_rule(
    implementation = _toolkit_impl,
    attrs = {"toolkit_path": attr.string()},
    configure = True,
    environ = ["CUDA_PATH", "PATH"],
    local = True,
)

def _toolchain_impl(ctx):
    paths = {"cuda": ""}
    for module in reversed(ctx.modules):
        if module.tags.component or module.tags.redist_json:
            fail("component and redist_json are not supported by this stand-in for rules_cuda")
        for tag in module.tags.toolkit:
            paths[tag.name] = tag.toolkit_path
    for name, path in paths.items():
        _toolkit(name = name, toolkit_path = path)

toolchain = module_extension(
    implementation = _toolchain_impl,
    tag_classes = {
        "component": tag_class(attrs = {"name": attr.string()}),
        "redist_json": tag_class(attrs = {"name": attr.string()}),
        "toolkit": tag_class(attrs = {
            "name": attr.string(default = "cuda"),
            "toolkit_path": attr.string(),
        }),
    },
)
