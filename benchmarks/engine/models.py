"""The same random weights as files: a checkpoint in bfloat16, and what CTranslate2 reads."""

import dataclasses
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.cpu.peer_model import write_peer_model
from benchmarks.engine import bart
from tools.lib.checkpoint_writer import stored, write_checkpoint
from tools.lib.model_config import ModelConfig
from tools.lib.random_weights import RandomWeights

_SEED = 20
_THREADS = min(16, os.cpu_count() or 1)


@dataclasses.dataclass(frozen=True)
class ModelFolders:
    """A Hugging Face checkpoint in bfloat16 and a CTranslate2 model in float16.

    `stand_in` is a checkpoint that this project's engine loads instead.
    """

    checkpoint: Path
    peer: Path
    stand_in: Path | None = None


def prepare(
    folder: Path, name: str, config: ModelConfig, stand_in: ModelConfig | None = None
) -> ModelFolders:
    """Writes all of them to folder/name, unless they are there already."""
    final = folder / name
    if not final.is_dir():
        unfinished = folder / f"{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        if stand_in:
            weights = RandomWeights(stand_in, _SEED)
            write_checkpoint(unfinished / "stand_in", stand_in, weights, "bfloat16")
        if config.model_type == bart.MODEL_TYPE:
            weights = bart.RandomWeights(config, _SEED)
            bart.write_checkpoint(unfinished / "checkpoint", config, weights, "bfloat16")
            bart.write_peer_model(unfinished / "peer", config, _rounded(weights), "float16")
        else:
            weights = RandomWeights(config, _SEED)
            write_checkpoint(unfinished / "checkpoint", config, weights, "bfloat16")
            write_peer_model(unfinished / "peer", config, _rounded(weights), "float16")
        unfinished.rename(final)
    stand_in_folder = final / "stand_in" if stand_in else None
    return ModelFolders(final / "checkpoint", final / "peer", stand_in_folder)


def _rounded(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the checkpoint holds, as float16, which has all of bfloat16's digits."""

    def half(name: str) -> np.ndarray:
        bits = stored(weights[name], "bfloat16").astype("<u4") << 16
        return bits.view("<f4").astype(np.float16)

    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(weights, threads.map(half, weights), strict=True))
