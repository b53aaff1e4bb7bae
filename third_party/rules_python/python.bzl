"""The python extension with today's tags; the interpreter is the host's, whatever the tags ask for."""

# This file takes its place inside rules_python.
# buildifier: disable=bzl-visibility
load("@rules_python//python/extensions/private:interpreter_hub.bzl", "hub_repo")

# buildifier: disable=bzl-visibility
load("//python/extensions/private:host_python.bzl", "host_python")

def _python_impl(_ctx):
    host_python(name = "host_python")
    hub_repo(name = "pythons_hub", toolchains = [])

python = module_extension(
    implementation = _python_impl,
    tag_classes = {
        "toolchain": tag_class(attrs = {
            "configure_coverage_tool": attr.bool(),
            "ignore_root_user_error": attr.bool(),
            "is_default": attr.bool(),
            "name": attr.string(),
            "python_version": attr.string(mandatory = True),
        }),
    },
)
