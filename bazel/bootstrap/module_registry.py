"""A file registry for the private Bazel: what MODULE.bazel asks for, out of Debian's packages.

Debian carries one version of each module, older than what MODULE.bazel names. Every version that
the graph asks for is listed, and each points at the one local copy.
"""

import json
import pathlib
import re
import shutil

import rules_python_copy
from files import SetupError, digest, folder_aside
from progress import Progress

BAZEL = "usr/share/bazel"
# What Bazel's built-in modules name, and nothing here looks into.
EMPTY_MODULES = ["buildozer", "protobuf", "zlib", "apple_support"]
BUILDOZER = '''"""No buildozer here: `bazel mod tidy` is the only thing that runs it."""

def _repository_impl(ctx):
    ctx.file("BUILD", 'exports_files(["buildozer.exe"])')
    ctx.file("buildozer.exe", "#!/bin/sh\\necho 'no buildozer here' >&2; exit 1", executable = True)

_repository = repository_rule(implementation = _repository_impl)
def _extension_impl(ctx):
    _repository(name = "buildozer_binary")

buildozer_binary = module_extension(implementation = _extension_impl)
'''
BUILT_IN_DEPENDENCY = (
    "platforms",
    "0.0.7",
)  # of local_config_platform, which has no MODULE.bazel to read


def prepare(
    root: pathlib.Path, cache: pathlib.Path, prefix: pathlib.Path, progress: Progress
) -> pathlib.Path:
    """Returns the registry's folder.

    Its name holds a hash: Bazel remembers what it read from a registry.
    """
    here = pathlib.Path(__file__).parent
    stand_ins = root / "third_party"
    sources = [root / "MODULE.bazel", stand_ins / "rules_cuda/MODULE.bazel"]
    inputs = [
        here / "module_registry.py",
        here / "rules_python_copy.py",
        stand_ins / "googletest.BUILD.bazel",
    ]
    inputs += sorted((stand_ins / "rules_python").glob("*.bzl"))
    target = cache / f"modules-{digest(str(prefix), *sources, *inputs)}"
    if not target.exists():
        with progress.step("the registry of local modules"), folder_aside(target) as aside:
            modules = local_modules(prefix, stand_ins, aside, target)
            built_in = prefix / BAZEL / "embedded_tools/MODULE.bazel"
            write_registry(aside / "registry", modules, [built_in, *sources])
    return target / "registry"


def local_modules(
    prefix: pathlib.Path, stand_ins: pathlib.Path, aside: pathlib.Path, target: pathlib.Path
) -> dict[str, tuple[pathlib.Path, pathlib.Path]]:
    """Module name -> (where it can be read now, where it will lie when Bazel reads it)."""
    rules = prefix / BAZEL / "rules"
    tools = prefix / BAZEL / "tools"
    found = {
        "platforms": tools / "platforms",
        "bazel_skylib": tools / "skylib",
        "bazel_features": tools / "features",
        "rules_cc": rules / "cc",
        "rules_java": rules / "java",
        "rules_license": rules / "license",
        "rules_proto": rules / "proto",
        "rules_shell": rules / "shell",
    }
    modules = {name: (path, path) for name, path in found.items()}
    rules_python_copy.make(rules / "python", stand_ins / "rules_python", aside / "rules_python")
    copy_googletest(
        prefix / "usr/src/googletest", stand_ins / "googletest.BUILD.bazel", aside / "googletest"
    )
    write_empty_modules(aside)
    for name in [*EMPTY_MODULES, "rules_python", "googletest"]:
        modules[name] = (aside / name, target / name)
    return modules


def write_empty_modules(folder: pathlib.Path) -> None:
    """Writes the modules that only have to exist."""
    for name in EMPTY_MODULES:
        (folder / name).mkdir()
        (folder / name / "MODULE.bazel").write_text(f'module(name = "{name}")\n')
        (folder / name / "BUILD.bazel").write_text("")
    (folder / "buildozer/buildozer_binary.bzl").write_text(BUILDOZER)
    (folder / "apple_support/platforms").mkdir()
    (folder / "apple_support/platforms/BUILD.bazel").write_text("")


def copy_googletest(source: pathlib.Path, build_file: pathlib.Path, target: pathlib.Path) -> None:
    """Copies GoogleTest's sources and gives them the build file that Debian's package lacks."""
    for name in ("googletest", "googlemock"):
        for part in ("include", "src"):
            shutil.copytree(source / name / part, target / name / part)
    shutil.copy(build_file, target / "BUILD.bazel")
    module = 'module(name = "googletest")\nbazel_dep(name = "rules_cc", version = "0.0.11")\n'
    (target / "MODULE.bazel").write_text(module)


def dependencies(module_file: str) -> list[tuple[str, str]]:
    """(module, version) of each bazel_dep that is needed outside the module's own development."""
    text = re.sub(r"(?m)^\s*#.*$", "", module_file)
    found = []
    for call in re.findall(r"\bbazel_dep\(([^)]*)\)", text):
        name = re.search(r'\bname\s*=\s*"([^"]+)"', call)
        version = re.search(r'\bversion\s*=\s*"([^"]*)"', call)
        if name and version and not re.search(r"dev_dependency\s*=\s*True", call):
            found.append((name.group(1), version.group(1)))
    return found


def write_registry(
    folder: pathlib.Path,
    modules: dict[str, tuple[pathlib.Path, pathlib.Path]],
    roots: list[pathlib.Path],
) -> None:
    """Writes an entry for each (module, version) that can be reached from the root files."""
    folder.mkdir()
    (folder / "bazel_registry.json").write_text("{}\n")
    pending = [BUILT_IN_DEPENDENCY]
    for path in roots:
        pending += dependencies(path.read_text())
    done = {
        ("rules_cuda", version) for name, version in pending if name == "rules_cuda"
    }  # overridden
    while pending:
        entry = pending.pop()
        if entry in done:
            continue
        done.add(entry)
        if entry[0] not in modules:
            raise SetupError(
                f"there is no local copy of module {entry[0]} (version {entry[1]} is asked for)"
            )
        pending += write_entry(folder, entry, *modules[entry[0]])


def write_entry(
    folder: pathlib.Path, entry: tuple[str, str], source: pathlib.Path, target: pathlib.Path
) -> list[tuple[str, str]]:
    """Writes one module version that points at `target`; returns what it depends on."""
    name, version = entry
    text = (source / "MODULE.bazel").read_text()
    header = re.search(r"(?ms)^module\(.*?^\)\n|^module\([^\n]*\)\n", text)
    if not header:
        raise SetupError(f"{source}/MODULE.bazel has no module() call")
    level = re.search(r"compatibility_level = \d+", header.group(0))
    body = re.sub(r"(?ms)^single_version_override\(.*?^\)\n", "", text[header.end() :])
    path = folder / "modules" / name / version
    path.mkdir(parents=True)
    arguments = [f'name = "{name}"', f'version = "{version}"'] + ([level.group(0)] if level else [])
    (path / "MODULE.bazel").write_text(f"module({', '.join(arguments)})\n{body}")
    (path / "source.json").write_text(
        json.dumps({"type": "local_path", "path": str(target)}) + "\n"
    )
    return dependencies(body)
