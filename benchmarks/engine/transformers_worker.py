"""Hugging Face transformers over a checkpoint, answering as batch_measuring.h says.

  python transformers_worker.py CHECKPOINT DEVICE DTYPE

Needs torch and transformers, and nothing of this repository: it may run in another interpreter than
the benchmark's driver.
"""

import json
import os
import sys
import time
import traceback
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM


class TransformersEngine:
    """generate() as it comes, with its default cache and attention."""

    def __init__(self, checkpoint: str, device: str, dtype: str) -> None:
        """Loads the checkpoint."""
        model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype))
        self._model = model.to(device).eval()
        self._device = device

    def measure(self, sources: list[list[int]], new_tokens: int) -> dict[str, Any]:
        """All sources in one batch; they must be of equal lengths.

        The time to the first token is that of a second call, which asks for one token.
        """
        seconds, ids = self._timed(sources, new_tokens)
        first_token_seconds, _ = self._timed(sources, 1)
        if self._device != "cpu":
            torch.cuda.empty_cache()  # The engines share the device's memory.
        return {"seconds": seconds, "first_token_seconds": first_token_seconds, "ids": ids}

    def _timed(self, sources: list[list[int]], new_tokens: int) -> tuple[float, list[list[int]]]:
        begin = time.perf_counter()
        ids = torch.tensor(sources, device=self._device)
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                num_beams=1,
                min_new_tokens=new_tokens,
                max_new_tokens=new_tokens,
            )
        new_ids = output[:, 1:].tolist()  # Waits for the device; the start token comes first.
        return time.perf_counter() - begin, new_ids


def main() -> None:
    """Answers until standard input ends."""
    # Libraries may print; the answers have the output for themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = TransformersEngine(*sys.argv[1:])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = engine.measure(request["sources"], request["new_tokens"])
        except Exception as error:
            torch.cuda.empty_cache()
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
