"""Tests that boot the real tritonserver."""

load("@rules_python//python:defs.bzl", "py_test")

_SERVER = "@tritonserver//:bin"
_BACKEND = "//backend:backends"
_TEST_BACKEND = "//backend/testing:backends"

def server_test(name, src, size = "medium", backends = ["release"], data = [], deps = [], tags = [], **kwargs):
    """A pytest file that runs against a tritonserver of its own.

    The same file runs as plain pytest where there is no Bazel: see docs/testing.md.

    Args:
      name: the target's name.
      src: the pytest file.
      size: Bazel's test size.
      backends: which backends the file boots: "release" is what ships, "testing" the testonly library
        that can delay its steps.
      data: further files.
      deps: further Python libraries.
      tags: further tags.
      **kwargs: passed to py_test.
    """
    layouts = {
        "release": ("SEQ2SEQ_BACKEND_DIR", _BACKEND),
        "testing": ("SEQ2SEQ_TEST_BACKEND_DIR", _TEST_BACKEND),
    }
    chosen = [layouts[backend] for backend in backends]
    py_test(
        name = name,
        size = size,
        srcs = [src, "//tests/harness:pytest_main.py"],
        args = ["$(rootpath %s)" % src],
        data = [src, "@tritonserver//:server"] + [_SERVER] + [label for _, label in chosen] + data,
        env = {"SEQ2SEQ_SERVER_DIR": "$(rootpath %s)" % _SERVER} | {
            variable: "$(rootpath %s)" % label
            for variable, label in chosen
        },
        main = "//tests/harness:pytest_main.py",
        # Server, engine and clients share the cores: one such test at a time on a small machine.
        tags = ["cpu:2"] + tags,
        deps = ["//tests/harness", "//tests/server:conftest"] + deps,
        **kwargs
    )
