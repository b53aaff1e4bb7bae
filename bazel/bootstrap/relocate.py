"""Makes an unpacked tree of Debian packages run from a folder, beside another C library."""

import base64
import hashlib
import os
import pathlib
import re
import struct
import zipfile

from files import SetupError, digest, run

LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = f"{LIBRARIES}/ld-linux-x86-64.so.2"
HELPERS = ["build-runfiles", "process-wrapper", "zipper", "linux-sandbox", "daemonize"]
CLASS_PATH = "usr/share/bazel/bazel_classpath_debian_depends.txt"


def java_home(root: pathlib.Path) -> pathlib.Path:
    """The Java runtime inside the tree."""
    homes = [
        path for path in root.glob("usr/lib/jvm/java-*-openjdk-amd64") if not path.is_symlink()
    ]
    if len(homes) != 1:
        raise SetupError(f"expected one Java runtime under {root}/usr/lib/jvm, found {len(homes)}")
    return homes[0]


def relocate(tree: pathlib.Path, target: pathlib.Path) -> None:
    """Changes what in `tree` names absolute paths, so that it runs when renamed to `target`."""
    make_links_relative(tree)
    patch_programs(tree, target)
    rebase_class_path(tree, target)


def make_links_relative(tree: pathlib.Path) -> None:
    """Points absolute links into the tree."""
    for folder, folders, names in os.walk(tree):
        for name in folders + names:
            path = pathlib.Path(folder, name)
            if not path.is_symlink() or not os.readlink(path).startswith("/"):
                continue
            inside = pathlib.Path(f"{tree}{os.readlink(path)}")
            if inside.exists() or inside.is_symlink():
                path.unlink()
                path.symlink_to(os.path.relpath(inside, folder))


def patch_programs(tree: pathlib.Path, target: pathlib.Path) -> None:
    """Gives the programs their own loader and libraries: no LD_LIBRARY_PATH leaks into actions."""
    java = java_home(tree)
    programs = [
        tree / "usr/bin/bazel",
        java / "bin/java",
        java / "bin/keytool",
        java / "lib/jspawnhelper",
    ]
    programs += [tree / "usr/libexec/x86_64-linux-gnu/bazel" / name for name in HELPERS]
    java_lib = target / java.relative_to(tree) / "lib"
    # DT_RPATH, not DT_RUNPATH: it also serves the libraries' own needs and dlopen.
    search = f"{target / LIBRARIES}:{java_lib}:{java_lib}/server"
    patchelf = [
        str(tree / LOADER),
        "--library-path",
        str(tree / LIBRARIES),
        str(tree / "usr/bin/patchelf"),
    ]
    for program in programs:
        options = [
            "--set-interpreter",
            str(target / LOADER),
            "--force-rpath",
            "--set-rpath",
            search,
        ]
        run([*patchelf, *options, str(program)], f"patchelf {program.name}")


def manifest_class_path(jar: pathlib.Path) -> list[str]:
    """The Class-Path entries of a jar's manifest, as they stand there."""
    with zipfile.ZipFile(jar) as archive:
        if "META-INF/MANIFEST.MF" not in archive.namelist():
            return []
        manifest = archive.read("META-INF/MANIFEST.MF").decode()
    unfolded = manifest.replace("\r\n", "\n").replace("\n ", "")
    match = re.search(r"^Class-Path:(.*)$", unfolded, re.MULTILINE)
    return match.group(1).split() if match else []


def rebase_class_path(tree: pathlib.Path, target: pathlib.Path) -> None:
    """Rebases Bazel's class path, with the jars that its jars name by absolute paths."""
    listed = (tree / CLASS_PATH).read_text().split()
    jars = [f"{tree}{name}" for name in listed if os.path.exists(f"{tree}{name}")]
    for jar in jars:  # grows while it is walked
        for entry in manifest_class_path(pathlib.Path(jar)):
            found = (
                f"{tree}{entry}"
                if entry.startswith("/")
                else os.path.join(os.path.dirname(jar), entry)
            )
            if os.path.exists(found) and found not in jars:
                jars.append(found)
    text = "".join(f"{target}{jar.removeprefix(str(tree))}\n" for jar in jars)
    (tree / CLASS_PATH).write_text(text)


def key_store(bundle: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """A Java key store of what this machine trusts, a private authority included."""
    path = folder / f"{digest(bundle)}.jks"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".part")
        aside.write_bytes(java_key_store(bundle.read_text()))
        aside.replace(path)
    return path


def java_key_store(pem: str) -> bytes:
    """Encodes certificates in the JKS format, version 2, with the customary password."""
    blocks = re.findall(
        r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", pem, re.DOTALL
    )
    certificates = [base64.b64decode("".join(block.split())) for block in blocks]

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    store = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for index, certificate in enumerate(certificates):
        store += struct.pack(">I", 2) + text(f"ca{index}") + struct.pack(">Q", 0) + text("X.509")
        store += struct.pack(">I", len(certificate)) + certificate
    return (
        store + hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + store).digest()
    )
