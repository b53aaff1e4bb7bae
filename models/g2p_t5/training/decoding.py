"""Greedy decoding with transformers, and scores on a split."""

import dataclasses
from collections.abc import Sequence

import torch
from transformers import PreTrainedTokenizerBase, T5ForConditionalGeneration

from models.g2p_t5.metrics import error_rates
from models.g2p_t5.training.pronunciations import Pronunciations


@torch.inference_mode()
def generate_ids(
    model: T5ForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    batch: int = 4096,
) -> list[list[int]]:
    """Greedy ids for each text: what follows the start token, EOS included, pads taken off."""
    out: list[list[int]] = [[] for _ in texts]
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    for begin in range(0, len(order), batch):
        indices = order[begin : begin + batch]
        encoded = tokenizer([texts[i] for i in indices], return_tensors="pt", padding=True)
        generated = model.generate(
            input_ids=encoded["input_ids"].to(model.device),
            attention_mask=encoded["attention_mask"].to(model.device),
            num_beams=1,
            do_sample=False,
        )
        for index, row in zip(indices, generated[:, 1:].tolist(), strict=True):
            eos = tokenizer.eos_token_id
            out[index] = row[: row.index(eos) + 1] if eos in row else row
    return out


def pronounce(
    model: T5ForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]
) -> list[list[str]]:
    """Phones for each text."""
    ids = generate_ids(model, tokenizer, texts)
    return [text.split() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]


def evaluate(
    model: T5ForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, words: Pronunciations
) -> dict[str, float]:
    """Number of words and their error rates, rounded to 0.001 %."""
    rates = error_rates(pronounce(model, tokenizer, list(words)), list(words.values()))
    rounded = {name: round(value, 3) for name, value in dataclasses.asdict(rates).items()}
    return {"words": len(words), **rounded}
