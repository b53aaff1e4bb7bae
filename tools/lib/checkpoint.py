"""A Hugging Face checkpoint of the T5 family, checked as the backend checks it, without torch."""

import dataclasses
import itertools
import os
from pathlib import Path

from tools.lib.errors import ToolError
from tools.lib.generation_config import check_generation_config
from tools.lib.json_file import read_object
from tools.lib.model_config import ModelConfig, read_model_config
from tools.lib.safetensors_header import TensorEntry, read_safetensors_header
from tools.lib.t5_tensors import (
    EMBEDDING_NAMES,
    HEAD_NAME,
    IGNORED_NAMES,
    stack_tensors,
)

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
TOKENIZER_NAMES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
)

_COMPARE_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint that passed every check: sizes, and the names of its files in `directory`."""

    directory: Path
    config: ModelConfig
    names: tuple[str, ...]


def check_checkpoint(directory: Path) -> CheckpointFiles:
    """Reads config.json, generation_config.json and all safetensors headers in `directory`.

    Raises ToolError naming file and key or tensor for: an unknown model_type, a missing or
    impossible value, a generation option that is not supported, a truncated file, a tensor that is
    missing, surplus, or of another shape, and copies of a tied weight that differ.
    """
    if not directory.is_dir():
        raise ToolError(f"{directory}: no such directory")
    config = read_model_config(directory)
    check_generation_config(directory, config)
    weight_names, tensors = _read_tensors(directory)
    weights = directory / weight_names[0]
    _check_tensors(weights, config, tensors)
    optional = [
        name
        for name in ("generation_config.json", *TOKENIZER_NAMES)
        if os.path.lexists(directory / name)
    ]
    return CheckpointFiles(directory, config, ("config.json", *optional, *weight_names))


def _read_tensors(directory: Path) -> tuple[list[str], dict[str, TensorEntry]]:
    """Names of the files that hold the weights (the index first) and all their tensors."""
    if os.path.lexists(directory / WEIGHTS_NAME):
        return [WEIGHTS_NAME], read_safetensors_header(directory / WEIGHTS_NAME)
    index = directory / INDEX_NAME
    if not os.path.lexists(index):
        raise ToolError(f"{directory / WEIGHTS_NAME}: no such file, and no {INDEX_NAME} either")
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ToolError(f"{index}: weight_map is missing or not an object with entries")
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ToolError(f"{index}: weight_map: {tensor} is in {shard!r}, not a plain file name")
    tensors: dict[str, TensorEntry] = {}
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        for name, entry in read_safetensors_header(directory / shard).items():
            if weight_map.get(name) != shard:
                raise ToolError(
                    f"{entry.path}: tensor {name} is not assigned to it by {INDEX_NAME}"
                )
            tensors[name] = entry
    for name, shard in weight_map.items():
        if name not in tensors:
            raise ToolError(
                f"{directory / shard}: tensor {name} is missing ({INDEX_NAME} has it here)"
            )
    return [INDEX_NAME, *shards], tensors


def _check_tensors(weights: Path, config: ModelConfig, tensors: dict[str, TensorEntry]) -> None:
    embeddings = [name for name in EMBEDDING_NAMES if name in tensors]
    if not embeddings and config.tied_head and HEAD_NAME in tensors:
        embeddings = [HEAD_NAME]
    expected = _expected(config, tensors, embeddings or list(EMBEDDING_NAMES[:1]))
    for name, shape in expected.items():
        if name not in tensors:
            raise ToolError(f"{weights}: tensor {name} with shape {list(shape)} is missing")
    for name, entry in tensors.items():
        if name in IGNORED_NAMES and config.model_type != "umt5":
            continue
        if name not in expected:
            raise ToolError(f"{entry.path}: tensor {name} does not belong to this model")
        if entry.shape != expected[name]:
            raise ToolError(
                f"{entry.path}: tensor {name} has shape {list(entry.shape)}, "
                f"expected {list(expected[name])}"
            )
    # A head of its own is told by its input not being scaled: transformers 5 saves
    # tie_word_embeddings: true for such models, too.
    head_is_copy = config.tied_head and config.scaled_head and HEAD_NAME in tensors
    copies = [*embeddings, HEAD_NAME] if head_is_copy else embeddings
    for one, other in itertools.pairwise(copies):
        if not _same_bytes(tensors[one], tensors[other]):
            raise ToolError(
                f"{tensors[other].path}: tensor {other} differs from {one}, to which it is tied"
            )


def _expected(
    config: ModelConfig, tensors: dict[str, TensorEntry], embeddings: list[str]
) -> dict[str, tuple[int, ...]]:
    """Every tensor that must be there, with its shape."""
    expected = stack_tensors(config)
    names = [*embeddings]
    if HEAD_NAME in tensors or not config.tied_head:
        names.append(HEAD_NAME)
    return expected | dict.fromkeys(names, (config.vocab_size, config.d_model))


def _same_bytes(one: TensorEntry, other: TensorEntry) -> bool:
    if one.dtype != other.dtype or one.end - one.begin != other.end - other.begin:
        return False
    with one.path.open("rb") as left, other.path.open("rb") as right:
        left.seek(one.begin)
        right.seek(other.begin)
        remaining = one.end - one.begin
        while remaining > 0:
            count = min(remaining, _COMPARE_BYTES)
            if left.read(count) != right.read(count):
                return False
            remaining -= count
    return True
