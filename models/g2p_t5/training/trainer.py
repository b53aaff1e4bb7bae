"""The training loop: AdamW, warm-up and cosine decay over a given time, averaged weights."""

import dataclasses
import json
import math
import time

import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerBase, T5ForConditionalGeneration

from models.g2p_t5.training.batches import Batches
from models.g2p_t5.training.decoding import evaluate
from models.g2p_t5.training.pronunciations import Pronunciations
from models.g2p_t5.training.tokenizer import PAD

_REPORT_STEPS = 200
_FINAL_RATE = 0.02


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """How to train. The learning rate falls over `minutes`; validation is not counted in them."""

    minutes: float = 7.3
    batch: int = 2048
    learning_rate: float = 2e-3
    warmup_steps: int = 500
    weight_decay: float = 0.02
    label_smoothing: float = 0.05
    averaging: float = 0.9995
    evaluations: int = 6


@dataclasses.dataclass
class TrainingRecord:
    """What a run came to."""

    train_seconds: float = 0.0
    steps: int = 0
    epochs: float = 0.0


class Trainer:
    """Trains one model. Afterwards the model has the averaged weights."""

    def __init__(
        self,
        model: T5ForConditionalGeneration,
        tokenizer: PreTrainedTokenizerBase,
        options: TrainingOptions,
    ) -> None:
        """Trains `model` where it is, on its own device."""
        self._model = model
        self._tokenizer = tokenizer
        self._options = options
        self._device = model.device.type
        self._parameters = [one for one in model.parameters() if one.requires_grad]
        self._average = [one.detach().clone() for one in self._parameters]
        self._optimizer = self._make_optimizer()

    def run(self, batches: Batches, valid: Pronunciations) -> TrainingRecord:
        """Trains until the time is up, with validations on `valid` evenly in between."""
        record = TrainingRecord()
        limit = 60 * self._options.minutes
        seen, validated, paused, begin = 0, 0, 0.0, time.monotonic()
        self._model.train()
        for source, target in batches.forever(self._options.batch):
            record.train_seconds = time.monotonic() - begin - paused
            share = record.train_seconds / limit
            if share >= 1:
                break
            loss = self._step(source, target, record.steps, share)
            record.steps += 1
            seen += len(source)
            record.epochs = seen / len(batches)
            if record.steps % _REPORT_STEPS == 0:
                print(f"step {record.steps}, epoch {record.epochs:.1f}, loss {loss.item():.4f}")
            if share >= (validated + 1) / (self._options.evaluations + 1):
                validated += 1
                pause = time.monotonic()
                print("valid", json.dumps(self._validate(valid)))
                paused += time.monotonic() - pause
        self._swap_average()
        self._model.eval()
        return record

    def _make_optimizer(self) -> torch.optim.AdamW:
        decayed, kept = [], []
        for name, parameter in self._model.named_parameters():
            matrix = parameter.dim() > 1 and "shared" not in name and "relative" not in name
            (decayed if matrix else kept).append(parameter)
        groups = [
            {"params": decayed, "weight_decay": self._options.weight_decay},
            {"params": kept, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=self._device == "cuda")

    def _step(
        self, source: torch.Tensor, target: torch.Tensor, step: int, share: float
    ) -> torch.Tensor:
        options = self._options
        cosine = 0.5 * (1 + math.cos(math.pi * share))
        warmup = min(1.0, (step + 1) / options.warmup_steps)
        for group in self._optimizer.param_groups:
            decayed = _FINAL_RATE + (1 - _FINAL_RATE) * cosine
            group["lr"] = options.learning_rate * warmup * decayed
        loss = self._loss(source, target)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimizer.step()
        # The average forgets its random beginning first.
        keep = min(options.averaging, (2 + step) / (21 + step))
        with torch.no_grad():
            torch._foreach_lerp_(self._average, self._parameters, 1 - keep)
        return loss

    def _loss(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        start = torch.full_like(target[:, :1], PAD)
        with torch.autocast(self._device, dtype=torch.bfloat16, enabled=self._device == "cuda"):
            logits = self._model(
                input_ids=source,
                attention_mask=(source != PAD).long(),
                decoder_input_ids=torch.cat([start, target[:, :-1]], 1),
                use_cache=False,
            ).logits
        return functional.cross_entropy(
            logits.float().flatten(0, 1),
            target.flatten(),
            ignore_index=PAD,
            label_smoothing=self._options.label_smoothing,
        )

    def _validate(self, valid: Pronunciations) -> dict[str, float]:
        self._model.eval()
        self._swap_average()
        scores = evaluate(self._model, self._tokenizer, valid)
        self._swap_average()
        self._model.train()
        return scores

    @torch.no_grad()
    def _swap_average(self) -> None:
        for parameter, average in zip(self._parameters, self._average, strict=True):
            kept = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(kept)
