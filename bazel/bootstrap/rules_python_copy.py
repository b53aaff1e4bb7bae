"""Debian's rules_python (0.22.1), taught the few newer names that MODULE.bazel uses.

The two .bzl files under third_party/rules_python replace the interpreter's extension; the pip
extension gets today's attribute names by the substitutions below.
"""

import pathlib
import shutil

from files import SetupError

MODULE = [
    ('use_repo(python, "pythons_hub")', 'use_repo(python, "host_python", "pythons_hub")'),
    (
        'register_toolchains("@bazel_tools//tools/python:autodetecting_toolchain")',
        'register_toolchains("@host_python//:toolchain")',
    ),
]
PIP_EXTENSION = [
    (
        "for attr in mod.tags.parse:",
        "for attr in mod.tags.parse:\n            hub = attr.hub_name or attr.name",
    ),
    ("name = attr.name,", "name = hub,"),  # repo_name too
    ("(attr.name, _sanitize_name(name))", "(hub, _sanitize_name(name))"),
    ("repo = attr.name,", "repo = hub,"),
    ('repo_prefix = attr.name + "_"', 'repo_prefix = hub + "_"'),
    (
        "python_interpreter = attr.python_interpreter,",
        'python_interpreter = attr.python_interpreter or "python" + attr.python_version,',
    ),
    # Labels of the form @hub//package.
    (
        "attr.incompatible_generate_aliases,",
        "attr.incompatible_generate_aliases or bool(attr.hub_name),",
    ),
    (
        '"name": attr.string(mandatory = True),',
        '"name": attr.string(), "hub_name": attr.string(), "python_version": attr.string(),',
    ),
]


def substitute(path: pathlib.Path, pairs: list[tuple[str, str]]) -> None:
    """Replaces texts that must be there: a different rules_python must not pass unnoticed."""
    text = path.read_text()
    for old, new in pairs:
        if old not in text:
            raise SetupError(
                f"{path}: expected {old!r}; this rules_python is not the one that is supported"
            )
        text = text.replace(old, new)
    path.write_text(text)


def make(source: pathlib.Path, overlay: pathlib.Path, target: pathlib.Path) -> None:
    """Copies rules_python from `source` to `target` with the changes."""
    shutil.copytree(source, target)
    extensions = target / "python/extensions"
    shutil.copy(overlay / "python.bzl", extensions / "python.bzl")
    shutil.copy(overlay / "host_python.bzl", extensions / "private/host_python.bzl")
    substitute(target / "MODULE.bazel", MODULE)
    substitute(extensions / "pip.bzl", PIP_EXTENSION)
