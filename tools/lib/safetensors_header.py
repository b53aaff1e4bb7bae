"""The header of a safetensors file, read and checked without loading any weight.

Layout: 8 bytes little-endian length N, N bytes of JSON {name: {dtype, shape, data_offsets}}, then
the data; offsets count from the end of the header.
"""

import dataclasses
import json
import math
import struct
from pathlib import Path

from tools.lib.errors import ToolError
from tools.lib.json_file import is_integer

# Bytes an element; the format has more, but weights come in these.
DTYPE_BYTES = {"F32": 4, "F16": 2, "BF16": 2}

_MAX_HEADER_BYTES = 16 << 20
_MAX_RANK = 8


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file: `begin` and `end` are absolute byte positions in `path`."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_safetensors_header(path: Path) -> dict[str, TensorEntry]:
    """Returns the tensors of `path` by name.

    A header that does not parse, an entry whose bytes do not fit its shape, a gap, an overlap or a
    file that ends too early or too late: ToolError naming file and tensor.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            if len(prefix) < 8:
                raise ToolError(
                    f"{path}: truncated: {size} bytes, too short for a safetensors file"
                )
            (length,) = struct.unpack("<Q", prefix)
            if length > _MAX_HEADER_BYTES:
                raise ToolError(f"{path}: not a safetensors file (a header of {length} bytes)")
            header = file.read(length)
    except FileNotFoundError as error:
        raise ToolError(f"{path}: no such file") from error
    except OSError as error:
        raise ToolError(f"{path}: not readable: {error.strerror}") from error
    if len(header) < length:
        raise ToolError(f"{path}: truncated inside the header ({len(header)} of {length} bytes)")
    tensors = _parse(path, header)
    _check_layout(path, tensors, 8 + length, size)
    return tensors


def _parse(path: Path, header: bytes) -> dict[str, TensorEntry]:
    try:
        values = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{path}: header is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ToolError(f"{path}: header is not a JSON object")
    data_begin = 8 + len(header)
    return {
        name: _entry(path, name, value, data_begin)
        for name, value in values.items()
        if name != "__metadata__"
    }


def _entry(path: Path, name: str, value: object, data_begin: int) -> TensorEntry:
    entry = value if isinstance(value, dict) else {}
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if dtype not in DTYPE_BYTES:
        raise ToolError(
            f"{path}: tensor {name}: dtype is {dtype!r}; supported are {', '.join(DTYPE_BYTES)}"
        )
    if (
        not _all_counts(shape)
        or len(shape) > _MAX_RANK
        or not _all_counts(offsets)
        or len(offsets) != 2
    ):
        raise ToolError(
            f"{path}: tensor {name}: shape {shape!r} or data_offsets {offsets!r} is bad"
        )
    begin, end = offsets
    expected = math.prod(shape) * DTYPE_BYTES[dtype]
    if end - begin != expected:
        raise ToolError(
            f"{path}: tensor {name}: {end - begin} bytes for shape {list(shape)} of {dtype}, "
            f"expected {expected}"
        )
    return TensorEntry(path, dtype, tuple(shape), data_begin + begin, data_begin + end)


def _all_counts(values: object) -> bool:
    return isinstance(values, list) and all(is_integer(value) and value >= 0 for value in values)


def _check_layout(path: Path, tensors: dict[str, TensorEntry], data_begin: int, size: int) -> None:
    """The format has writers lay tensors one after the other and leave no byte over."""
    expected = data_begin
    for name, entry in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != expected:
            raise ToolError(
                f"{path}: tensor {name} begins at byte {entry.begin}, "
                f"the one before ends at {expected}"
            )
        if entry.end > size:
            raise ToolError(
                f"{path}: truncated: tensor {name} ends at byte {entry.end}, the file at {size}"
            )
        expected = entry.end
    if expected != size:
        raise ToolError(f"{path}: {size - expected} bytes more than its tensors account for")
