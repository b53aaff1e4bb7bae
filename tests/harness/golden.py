"""The committed goldens: what Hugging Face transformers answers for the tiny checkpoints."""

import base64
import dataclasses
import functools
import json
import pathlib
from typing import Any

import numpy as np

# Not resolved: under Bazel this file is a link out of the folder that holds the test's data.
CHECKPOINTS = pathlib.Path(__file__).absolute().parents[1] / "data" / "checkpoints"


@dataclasses.dataclass(frozen=True)
class Case:
    """One source and its greedy answer, as the backend returns it: no start token, no pads."""

    source: tuple[int, ...]
    answer: tuple[int, ...]
    eos_id: int

    @property
    def finish_reason(self) -> str:
        """What ends this answer."""
        return "eos" if self.answer and self.answer[-1] == self.eos_id else "length"


class Golden:
    """expected.json of one checkpoint folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
        config = json.loads((folder / "config.json").read_text())
        self.eos_id: int = config["eos_token_id"]
        self.pad_id: int = config["pad_token_id"]
        self.start_id: int = config["decoder_start_token_id"]
        self.vocab_size: int = config["vocab_size"]

    def _case(self, source: list[int], answer: list[int]) -> Case:
        """Cuts pads off the source, and the start token and what follows EOS off the answer."""
        new = answer[1:]
        if self.eos_id in new:
            new = new[: new.index(self.eos_id) + 1]
        source = source[: source.index(self.eos_id) + 1]
        return Case(tuple(source), tuple(new), self.eos_id)

    @property
    def rows(self) -> list[Case]:
        """The main rows, with max_length 32."""
        pairs = zip(self._expected["input_ids"], self._expected["greedy"], strict=True)
        return [self._case(*pair) for pair in pairs]

    @property
    def short_rows(self) -> list[Case]:
        """The main rows, with max_length 6."""
        pairs = zip(self._expected["input_ids"], self._expected["greedy_max_length_6"], strict=True)
        return [self._case(*pair) for pair in pairs]

    @property
    def many(self) -> list[Case]:
        """Rows of all lengths, for many streams."""
        many = self._expected["many"]
        return [self._case(*pair) for pair in zip(many["input_ids"], many["greedy"], strict=True)]

    @property
    def early_eos(self) -> Case:
        """A source of EOS alone."""
        entry = self._expected["early_eos"]
        return self._case(entry["input_ids"], entry["greedy"])

    @property
    def padded(self) -> tuple[Case, list[int]]:
        """One case, and how many pads may stand behind its source."""
        entry = self._expected["padded"]
        return self._case(entry["input_ids"], entry["greedy"]), entry["pads"]

    @property
    def long(self) -> tuple[Case, int]:
        """A case beyond 128 tokens on both sides, and its min_new_tokens = max_new_tokens."""
        entry = self._expected["long"]
        return self._case(entry["input_ids"], entry["greedy"]), entry["max_new_tokens"]

    @property
    def row0_logits(self) -> np.ndarray:
        """[new tokens, vocabulary] float32: the logits that choose each token of row 0's answer."""
        raw = base64.b64decode(self._expected["tf_logits_row0_b64_f32"])
        logits = np.frombuffer(raw, np.float32).reshape(self._expected["tf_logits_row0_shape"])
        return logits[: len(self.rows[0].answer)]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-softmax over the last axis, in float64."""
    wide = logits.astype(np.float64)
    wide = wide - wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


@functools.cache
def load(name: str) -> Golden:
    """The goldens of tests/data/checkpoints/<name>."""
    return Golden(CHECKPOINTS / name)
