"""Draws the fixed sample of held-out words and records what transformers generates for it, in fp32.

python -m models.g2p_t5.training.make_testdata --data cmudict_g2p.tsv.xz
"""

import argparse
import dataclasses
import json
import random
from pathlib import Path

import torch
import transformers
from transformers import AutoTokenizer, T5ForConditionalGeneration

from models.g2p_t5.metrics import error_rates
from models.g2p_t5.training.decoding import generate_ids
from models.g2p_t5.training.pronunciations import read_pronunciations

ROOM = Path(__file__).resolve().parent.parent
SAMPLE_WORDS = 500
SEED = 20240607


def main() -> None:
    """Draws, decodes, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="what prepare_data.py wrote")
    parser.add_argument("--checkpoint", type=Path, default=ROOM / "checkpoint")
    parser.add_argument("--out", type=Path, default=ROOM / "testdata")
    arguments = parser.parse_args()
    test = read_pronunciations(arguments.data)["test"]
    words = sorted(random.Random(SEED).sample(sorted(test), SAMPLE_WORDS))

    tokenizer = AutoTokenizer.from_pretrained(arguments.checkpoint)
    model = T5ForConditionalGeneration.from_pretrained(arguments.checkpoint, dtype=torch.float32)
    # One word a batch: no padding takes part in the truth.
    ids = [generate_ids(model.eval(), tokenizer, [word])[0] for word in words]
    phones = [text.split() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
    rates = error_rates(phones, [test[word] for word in words])

    arguments.out.mkdir(exist_ok=True)
    with (arguments.out / "sample.tsv").open("w", encoding="utf-8") as file:
        for word in words:
            file.writelines(f"{word}\t{' '.join(reference)}\n" for reference in test[word])
    with (arguments.out / "golden.tsv").open("w", encoding="utf-8") as file:
        file.writelines(
            f"{word}\t{' '.join(map(str, row))}\n" for word, row in zip(words, ids, strict=True)
        )
    record = {
        "words": len(words),
        "seed": SEED,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        **dataclasses.asdict(rates),
    }
    (arguments.out / "golden_rates.json").write_text(
        json.dumps(record, indent=2) + "\n", encoding="utf-8"
    )
    print(json.dumps(record))


if __name__ == "__main__":
    main()
