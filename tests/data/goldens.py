"""expected.json: what transformers answers, in float32 arithmetic over the stored weights.

Every greedy answer comes with the smallest distance between the best and the second-best logit that
was met on its way (`min_margin`), so that equality of tokens is a meaningful demand.
"""

import base64
import json
import pathlib
from typing import Any

import torch
import transformers

from tests.data import toy_task

MAX_LENGTH = 32
LEAST_MARGIN = 1e-3
_LONG_SYMBOLS = 180
_LONG_TARGET = 170


def _encode(logits: torch.Tensor) -> dict[str, Any]:
    """Logits as JSON: the shape and little-endian float32 in base64."""
    raw = logits.float().contiguous().numpy().tobytes()
    return {"shape": list(logits.shape), "b64_f32": base64.b64encode(raw).decode()}


def _greedy(model: Any, rows: list[list[int]], **options: Any) -> tuple[list[list[int]], float]:
    """Greedy ids with the start token, right-padded, and the smallest margin."""
    config = model.config
    input_ids = toy_task.pad(rows, config.pad_token_id)
    lengths = torch.tensor([len(r) for r in rows])[:, None]
    mask = (torch.arange(input_ids.shape[1])[None] < lengths).long()
    result = model.generate(
        input_ids=input_ids,
        attention_mask=mask,
        num_beams=1,
        do_sample=False,
        output_scores=True,
        return_dict_in_generate=True,
        **options,
    )
    ended = torch.zeros(len(rows), dtype=torch.bool)
    margin = float("inf")
    for step, scores in enumerate(result.scores):
        best = scores.topk(2, dim=-1).values
        running = (best[:, 0] - best[:, 1])[~ended]
        margin = min([margin, *running.tolist()])
        ended |= result.sequences[:, step + 1] == config.eos_token_id
    return result.sequences.tolist(), margin


def _teacher_forced(model: Any, source: list[int], decoder_ids: list[int]) -> torch.Tensor:
    """Logits [len(decoder_ids), vocabulary] of one row."""
    with torch.no_grad():
        return model(
            input_ids=torch.tensor([source]),
            attention_mask=torch.ones(1, len(source), dtype=torch.int64),
            decoder_input_ids=torch.tensor([decoder_ids]),
        ).logits[0]


def _main_rows(model: Any, task: toy_task.ToyTask) -> dict[str, Any]:
    """Six rows as one batch: greedy, cut at max_length 6, and logits of the first row."""
    pad_id = model.config.pad_token_id
    sources = [task.source(n) for n in (9, 3, toy_task.MAX_SYMBOLS, 12, 1, 5)]
    greedy, margin = _greedy(model, sources, max_length=MAX_LENGTH)
    short, _ = _greedy(model, sources, max_length=6)
    logits = _teacher_forced(model, sources[0], greedy[0][:-1])
    encoded = _encode(logits)
    padded = toy_task.pad(sources, pad_id)
    return {
        "input_ids": padded.tolist(),
        "attention_mask": (padded != pad_id).long().tolist(),
        "max_length": MAX_LENGTH,
        "greedy": greedy,
        "greedy_max_length_6": short,
        "min_margin": margin,
        "tf_decoder_input_ids": [row[:-1] for row in greedy],
        "tf_logits_row0_shape": encoded["shape"],
        "tf_logits_row0_b64_f32": encoded["b64_f32"],
    }


def _early_eos(model: Any, task: toy_task.ToyTask) -> dict[str, Any]:
    """A source of EOS alone, which the models answer with EOS at once."""
    source = task.source(0)
    greedy, margin = _greedy(model, [source], max_length=MAX_LENGTH)
    if greedy[0][1] != model.config.eos_token_id:
        raise ValueError(
            f"the source {source} is answered by {greedy[0]}, not by EOS; train longer"
        )
    return {"input_ids": source, "greedy": greedy[0], "min_margin": margin}


def _padded(model: Any, task: toy_task.ToyTask) -> dict[str, Any]:
    """One source with 0, 7 and 100 pads behind it: one answer."""
    source = task.source(6)
    alone, margin = _greedy(model, [source], max_length=MAX_LENGTH)
    for pads in (7, 100):
        row = source + [model.config.pad_token_id] * pads
        mask = [1] * len(source) + [0] * pads
        ids = model.generate(
            input_ids=torch.tensor([row]),
            attention_mask=torch.tensor([mask]),
            num_beams=1,
            do_sample=False,
            max_length=MAX_LENGTH,
        )
        if ids[0].tolist() != alone[0]:
            raise ValueError(f"{pads} pads change the answer from {alone[0]} to {ids[0].tolist()}")
    return {"input_ids": source, "pads": [0, 7, 100], "greedy": alone[0], "min_margin": margin}


def _long(model: Any, task: toy_task.ToyTask) -> dict[str, Any]:
    """Source and target beyond 128 tokens, where T5's last relative bucket lies."""
    for _ in range(50):
        source = task.source(_LONG_SYMBOLS)
        length = {"min_new_tokens": _LONG_TARGET, "max_new_tokens": _LONG_TARGET}
        greedy, margin = _greedy(model, [source], **length)
        if margin >= LEAST_MARGIN:
            break
    else:
        raise ValueError("no long source decodes with clear margins")
    logits = _teacher_forced(model, source, greedy[0][:-1])[-3:]
    return {
        "input_ids": source,
        **length,
        "greedy": greedy[0],
        "min_margin": margin,
        "tf_logits_last_rows": _encode(logits),
    }


def _many(model: Any, task: toy_task.ToyTask, rows: int) -> dict[str, Any]:
    """Rows of all lengths, without padding, for tests with many streams at once."""
    sources = [task.source(i % (toy_task.MAX_SYMBOLS + 1)) for i in range(rows)]
    greedy, margin = _greedy(model, sources, max_length=MAX_LENGTH)
    eos = model.config.eos_token_id
    trimmed = [row[: row.index(eos, 1) + 1] if eos in row[1:] else row for row in greedy]
    return {"input_ids": sources, "greedy": trimmed, "min_margin": margin}


def _smallest_margin(node: Any) -> float:
    if not isinstance(node, dict):
        return float("inf")
    own = node.get("min_margin", float("inf"))
    return min([own, *(_smallest_margin(v) for v in node.values())])


def write(path: pathlib.Path, model: Any, task: toy_task.ToyTask, family: Any) -> float:
    """Writes expected.json and returns the smallest margin in it; too small a one is an error."""
    expected: dict[str, Any] = {
        "family": family.library_class,
        "weights_dtype": family.dtype,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        **_main_rows(model, task),
        "early_eos": _early_eos(model, task),
        "padded": _padded(model, task),
    }
    if family.long_cases:
        expected["long"] = _long(model, task)
    if family.many_rows:
        expected["many"] = _many(model, task, family.many_rows)
    margin = _smallest_margin(expected)
    if margin < LEAST_MARGIN:
        raise ValueError(f"smallest margin {margin} is below {LEAST_MARGIN}; use another seed")
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in expected.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return margin
