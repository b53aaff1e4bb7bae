"""A Python toolchain over the interpreter that SEQ2SEQ_PYTHON names."""

_BUILD_FILE = """\
load("@rules_python//python:py_runtime.bzl", "py_runtime")
load("@rules_python//python:py_runtime_pair.bzl", "py_runtime_pair")

py_runtime(
    name = "runtime",
    interpreter_path = "{interpreter}",
    python_version = "PY3",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    target_compatible_with = ["@platforms//os:linux"],
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
    visibility = ["//visibility:public"],
)
"""

def _host_python_impl(ctx):
    interpreter = ctx.os.environ.get("SEQ2SEQ_PYTHON")
    if not interpreter:
        fail("SEQ2SEQ_PYTHON is not set: build with ./bazelw, which writes .bazelrc.local")
    ctx.file("BUILD.bazel", _BUILD_FILE.format(interpreter = interpreter))

host_python = repository_rule(
    implementation = _host_python_impl,
    configure = True,
    environ = ["SEQ2SEQ_PYTHON"],
    local = True,
)
