"""Training batches: single words, and phrases put together from random words."""

import random
from collections.abc import Iterator

import numpy as np
import torch

from models.g2p_t5.training.pronunciations import Pronunciations
from models.g2p_t5.training.tokenizer import EOS, MAX_TOKENS, PAD, SEPARATOR

Batch = tuple[torch.Tensor, torch.Tensor]

# Columns of a single word, source and target alike, EOS included.
WORD_TOKENS = 32
_PHRASE_WORDS = 8
_MIN_PHRASE_WORDS = 2
# A phrase keeps two columns free: for its EOS and one spare.
_PHRASE_TOKENS = MAX_TOKENS - 2


class Batches:
    """An endless supply of (source, target) id batches, both [batch, tokens], on one device."""

    def __init__(
        self,
        words: Pronunciations,
        vocabulary: dict[str, int],
        device: str,
        seed: int,
        phrase_probability: float,
    ) -> None:
        """Puts all of `words` on the device.

        After each batch of words comes, with the given probability, a batch of phrases of a quarter
        of its size.
        """
        self._device = device
        self._phrase_probability = phrase_probability
        self._random = random.Random(seed)
        self._generator = torch.Generator(device=device).manual_seed(seed)
        sources, targets, first = [], [], []
        for word, pronunciations in words.items():
            first.append(len(sources))
            for pronunciation in pronunciations:
                sources.append([vocabulary[letter] for letter in word])
                targets.append([vocabulary[phone] for phone in pronunciation])
        self._source = _padded(sources).to(device)
        self._target = _padded(targets).to(device)
        # Phrases use a word's first pronunciation.
        self._first = torch.tensor(first, device=device)

    def __len__(self) -> int:
        """The number of (word, pronunciation) pairs."""
        return len(self._source)

    def forever(self, size: int) -> Iterator[Batch]:
        """Yields batches of `size` words, reshuffled every time all were seen."""
        while True:
            order = torch.randperm(len(self), generator=self._generator, device=self._device)
            for begin in range(0, max(len(self) - size, 0) + 1, size):
                rows = order[begin : begin + size]
                yield self._source[rows], self._target[rows]
                if self._random.random() < self._phrase_probability:
                    yield self._phrases(max(8, size // 4))

    def _phrases(self, count: int) -> Batch:
        """`count` phrases of two to eight words, as many of them as fit."""
        words = self._first[self._randint(0, len(self._first), (count, _PHRASE_WORDS))]
        parts = [self._source[words], self._target[words]]  # each [count, words, WORD_TOKENS]
        lengths = [(part > EOS).sum(-1) for part in parts]
        offsets = [(length + 1).cumsum(1) - (length + 1) for length in lengths]
        wanted = self._randint(_MIN_PHRASE_WORDS, _PHRASE_WORDS + 1, (count, 1))
        used = torch.arange(_PHRASE_WORDS, device=self._device)[None] < wanted
        for offset, length in zip(offsets, lengths, strict=True):
            used = used & (offset + length <= _PHRASE_TOKENS)
        used = used.long().cumprod(1).bool()
        source, target = (
            _joined(part, length, offset, used)
            for part, length, offset in zip(parts, lengths, offsets, strict=True)
        )
        return source, target

    def _randint(self, low: int, high: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=self._generator, device=self._device)


def _padded(rows: list[list[int]]) -> torch.Tensor:
    out = np.full((len(rows), WORD_TOKENS), PAD, np.int64)
    for index, row in enumerate(rows):
        out[index, : len(row)] = row
        out[index, len(row)] = EOS
    return torch.from_numpy(out)


def _joined(
    part: torch.Tensor, length: torch.Tensor, offset: torch.Tensor, used: torch.Tensor
) -> torch.Tensor:
    """Copies words [count, words, tokens] to their offsets in rows of MAX_TOKENS ids.

    What is not used goes to a column beyond, which is cut off.
    """
    count = len(part)
    column = torch.arange(part.shape[-1], device=part.device)
    # A word's EOS becomes the separator, but for the last one's.
    part = torch.where(part == EOS, SEPARATOR, part)
    inside = used[..., None] & (column <= length[..., None])
    place = torch.where(inside, offset[..., None] + column, MAX_TOKENS)
    rows = torch.zeros(count, MAX_TOKENS + 1, dtype=torch.long, device=part.device)
    rows.scatter_(1, place.flatten(1), part.flatten(1))
    last = used.sum(1, keepdim=True) - 1
    rows.scatter_(1, (offset + length).gather(1, last), EOS)
    return rows[:, :MAX_TOKENS]
