"""Assembling is all or nothing."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.lib import assemble as assemble_module
from tools.lib.assemble import AssembleRequest, assemble
from tools.lib.config_writer import ModelConfigText, write_config
from tools.lib.errors import ToolError
from tools.testing.tiny_checkpoint import SHAPES, write_checkpoint

CONFIG = ModelConfigText("tiny")


def tree(root: Path) -> dict[str, bytes | None]:
    """Everything under `root`: contents of files, None for folders."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
    }


def test_brings_the_checkpoint_as_it_is(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c")
    (checkpoint / "tokenizer.json").write_text("{}")
    (checkpoint / "training_args.bin").write_text("of no use to a server")
    model = assemble(AssembleRequest(checkpoint, tmp_path / "r" / "models", CONFIG))
    assert model == tmp_path / "r" / "models" / "tiny"
    files = tree(tmp_path / "r" / "models")
    assert files.pop("tiny/config.pbtxt") == write_config(CONFIG).encode()
    version = {name: data for name, data in files.items() if data is not None}
    assert version == {
        f"tiny/1/{name}": data for name, data in tree(checkpoint).items() if "training" not in name
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "r"]
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["models"]


def test_hard_links_share_the_bytes_of_symlinked_files(tmp_path: Path) -> None:
    blobs = write_checkpoint(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    for blob in blobs.iterdir():
        (tmp_path / "snapshot" / blob.name).symlink_to(blob)
    assemble(AssembleRequest(tmp_path / "snapshot", tmp_path / "r", CONFIG, link=True))
    weights = tmp_path / "r" / "tiny" / "1" / "model.safetensors"
    assert not weights.is_symlink()
    assert weights.samefile(blobs / "model.safetensors")


def test_does_not_overwrite_unless_told(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c")
    request = AssembleRequest(checkpoint, tmp_path / "r", CONFIG)
    (assemble(request) / "mine").write_text("keep")
    before = tree(tmp_path)
    with pytest.raises(ToolError, match=r"tiny: exists already; --overwrite"):
        assemble(request)
    assert tree(tmp_path) == before
    assemble(AssembleRequest(checkpoint, tmp_path / "r", CONFIG, overwrite=True))
    assert "r/tiny/mine" not in tree(tmp_path)
    assert "r/tiny/config.pbtxt" in tree(tmp_path)


def drop_weight(checkpoint: Path) -> None:
    for path in checkpoint.iterdir():
        path.unlink()
    checkpoint.rmdir()
    shapes = {name: shape for name, shape in SHAPES.items() if "final" not in name}
    write_checkpoint(checkpoint, shapes=shapes)


def truncate(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 4)


def other_type(checkpoint: Path) -> None:
    config = checkpoint / "config.json"
    config.write_text(config.read_text().replace('"t5"', '"bart"'))


@pytest.mark.parametrize(
    ("damage", "file", "key"),
    [
        (drop_weight, "model.safetensors", "encoder.final_layer_norm.weight"),
        (truncate, "model.safetensors", "decoder.final_layer_norm.weight"),
        (other_type, "config.json", "model_type"),
    ],
)
@pytest.mark.parametrize("repository_exists", [False, True])
def test_a_bad_checkpoint_writes_nothing(
    tmp_path: Path, damage: Callable[[Path], None], file: str, key: str, repository_exists: bool
) -> None:
    checkpoint = write_checkpoint(tmp_path / "c")
    damage(checkpoint)
    if repository_exists:
        (tmp_path / "r").mkdir()
    before = tree(tmp_path)
    with pytest.raises(ToolError) as raised:
        assemble(AssembleRequest(checkpoint, tmp_path / "r", CONFIG))
    assert str(checkpoint / file) in str(raised.value)
    assert key in str(raised.value)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_failure_midway_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, overwrite: bool
) -> None:
    checkpoint = write_checkpoint(tmp_path / "c")
    request = AssembleRequest(checkpoint, tmp_path / "r" / "s", CONFIG, overwrite=overwrite)
    if overwrite:
        assemble(request)
    before = tree(tmp_path)
    seen: list[dict[str, bytes | None]] = []

    def fail(*_: object) -> None:
        seen.append(tree(tmp_path))
        raise error

    monkeypatch.setattr(assemble_module, "_write_text", fail)
    with pytest.raises((ToolError, KeyboardInterrupt)):
        assemble(request)
    assert any("model.safetensors" in name for name in set(seen[0]) - set(before))
    assert tree(tmp_path) == before


def test_the_old_model_stays_when_the_last_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = write_checkpoint(tmp_path / "c")
    request = AssembleRequest(checkpoint, tmp_path / "r", CONFIG, overwrite=True)
    assemble(request)
    before = tree(tmp_path)
    rename = Path.rename

    def fail_once(self: Path, target: Path) -> Path:
        if self.parent.name.startswith(".assemble-") and self.name == "tiny":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises(ToolError, match="Input/output error"):
        assemble(request)
    assert tree(tmp_path) == before


def test_refuses_a_repository_that_is_a_file(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c")
    (tmp_path / "r").write_text("")
    with pytest.raises(ToolError, match="r: not a directory"):
        assemble(AssembleRequest(checkpoint, tmp_path / "r", CONFIG))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
