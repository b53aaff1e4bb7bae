"""Edits safetensors files for tests that damage them."""

import json
import pathlib
import struct


def edit(
    path: pathlib.Path,
    *,
    drop: str | None = None,
    copy: tuple[str, str] | None = None,
    dtype: tuple[str, str] | None = None,
) -> None:
    """Rewrites `path` with some change.

    `drop` is left out; copy[0] becomes copy[1], too; dtype[0] claims to hold dtype[1].
    """
    raw = path.read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + size])
    data = raw[8 + size :]
    metadata = header.pop("__metadata__", {})
    tensors = {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }
    if drop:
        del tensors[drop]
    if copy:
        tensors[copy[1]] = tensors[copy[0]]
    if dtype:
        tensors[dtype[0]] = (dtype[1], *tensors[dtype[0]][1:])
    path.write_bytes(_serialize(tensors, metadata))


def _serialize(tensors: dict[str, tuple[str, list[int], bytes]], metadata: dict[str, str]) -> bytes:
    header: dict[str, object] = {"__metadata__": metadata}
    chunks = []
    offset = 0
    for name, (dtype, shape, chunk) in tensors.items():
        end = offset + len(chunk)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        chunks.append(chunk)
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of eight bytes
    return struct.pack("<Q", len(text)) + text + b"".join(chunks)
