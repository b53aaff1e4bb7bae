"""The task that the tiny models learn, so that decoding is decided and does not degenerate.

A source is a few symbols and EOS; its target is the symbols, each replaced by its partner, in
reverse order, and EOS. An empty source has an empty target: EOS at once.
"""

import dataclasses

import torch

_FIRST_SYMBOL = 10
_SYMBOLS = 40
MAX_SYMBOLS = 14


@dataclasses.dataclass(frozen=True)
class Batch:
    """Right-padded rows. Labels hold -100 where there is nothing to predict."""

    input_ids: torch.Tensor  # [rows, source], int64
    attention_mask: torch.Tensor  # [rows, source], 1 where a token is
    labels: torch.Tensor  # [rows, target], int64


class ToyTask:
    """Draws batches from one generator; the same seed gives the same sequence of batches."""

    def __init__(self, seed: int, pad_id: int, eos_id: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._partner = (
            torch.randperm(_SYMBOLS, generator=self._generator) + _FIRST_SYMBOL + _SYMBOLS
        )
        self._pad_id = pad_id
        self._eos_id = eos_id

    def source(self, symbols: int) -> list[int]:
        """A source of `symbols` random symbols and EOS."""
        drawn = torch.randint(0, _SYMBOLS, (symbols,), generator=self._generator)
        return [*(drawn + _FIRST_SYMBOL).tolist(), self._eos_id]

    def target(self, source: list[int]) -> list[int]:
        """The right answer to `source`."""
        symbols = torch.tensor(source[:-1], dtype=torch.int64) - _FIRST_SYMBOL
        return [*self._partner[symbols].flip(0).tolist(), self._eos_id]

    def batch(self, rows: int) -> Batch:
        """`rows` random sources of 0 to MAX_SYMBOLS symbols with their targets."""
        lengths = torch.randint(0, MAX_SYMBOLS + 1, (rows,), generator=self._generator)
        sources = [self.source(n) for n in lengths.tolist()]
        input_ids = pad(sources, self._pad_id)
        lengths_with_eos = (lengths + 1)[:, None]
        mask = (torch.arange(input_ids.shape[1])[None] < lengths_with_eos).long()
        return Batch(input_ids, mask, pad([self.target(s) for s in sources], -100))


def pad(rows: list[list[int]], value: int) -> torch.Tensor:
    """Right-pads rows to the longest."""
    width = max(len(r) for r in rows)
    return torch.tensor([r + [value] * (width - len(r)) for r in rows], dtype=torch.int64)


def fit(model: torch.nn.Module, task: ToyTask, steps: int) -> float:
    """Trains `model` on `task` in place and returns the last loss."""
    pad_id = model.config.pad_token_id
    start = model.config.decoder_start_token_id
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0, betas=(0.9, 0.98))
    loss = torch.tensor(0.0)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min(1.0, (step + 1) / 40) * (1 - step / steps) + 1e-5
        batch = task.batch(64)
        labels = batch.labels
        shifted = labels.masked_fill(labels == -100, pad_id)[:, :-1]
        shifted = torch.cat([torch.full((len(labels), 1), start), shifted], dim=1)
        logits = model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            decoder_input_ids=shifted,
        ).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    return loss.item()
