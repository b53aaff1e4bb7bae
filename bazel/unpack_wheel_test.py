"""The lock's grammar, and what is taken out of a wheel."""

import pathlib
import stat
import sys
import zipfile

import pytest

from bazel import unpack_wheel

HASH = "--hash=sha256:" + "0" * 64


def make_wheel(folder: pathlib.Path) -> pathlib.Path:
    wheel = folder / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("thing/bin/program", b"\x7fELF and more")
        archive.writestr("thing/bin/notes.txt", b"text")
        archive.writestr("thing/lib/libthing.so", b"\x7fELF and more")
        archive.writestr("other/file", b"unwanted")
    return wheel


def is_executable(path: pathlib.Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR)


def test_lock_joins_continued_lines_and_normalizes_names():
    text = f"# a comment\nSome_Thing==1.0 \\\n    {HASH} \\\n    {HASH}\n    # via other\n"
    found = unpack_wheel.locked_requirements(text)
    assert list(found) == ["some-thing"]
    assert found["some-thing"].split() == ["Some_Thing==1.0", HASH, HASH]


@pytest.mark.parametrize("line", ["thing==1.0", "thing>=1.0 " + HASH, "-r other.txt", "thing"])
def test_lock_refuses_what_is_not_pinned_by_hash(line):
    with pytest.raises(unpack_wheel.WheelError, match="pins nothing by hash"):
        unpack_wheel.locked_requirements(line + "\n")


def test_only_files_under_the_prefixes_are_unpacked(tmp_path):
    count = unpack_wheel.unpack(make_wheel(tmp_path), tmp_path / "out", ["thing/lib/"])
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert (count, files) == (1, [tmp_path / "out/thing/lib/libthing.so"])


def test_programs_become_executable_and_nothing_else_does(tmp_path):
    assert unpack_wheel.unpack(make_wheel(tmp_path), tmp_path / "out", []) == 4
    assert is_executable(tmp_path / "out/thing/bin/program")
    assert not is_executable(tmp_path / "out/thing/bin/notes.txt")
    assert not is_executable(tmp_path / "out/thing/lib/libthing.so")


def test_a_prefix_that_matches_nothing_is_an_error(tmp_path):
    with pytest.raises(unpack_wheel.WheelError, match="nothing under"):
        unpack_wheel.unpack(make_wheel(tmp_path), tmp_path / "out", ["absent/"])


def test_a_distribution_that_the_lock_lacks_is_named(tmp_path):
    lock = tmp_path / "some.lock"
    lock.write_text(f"thing==1.0 {HASH}\n")
    with pytest.raises(unpack_wheel.WheelError, match=r"some\.lock pins no 'absent'"):
        unpack_wheel.fetch(lock, "absent", tmp_path / "out", [])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-p", "no:cacheprovider"]))
