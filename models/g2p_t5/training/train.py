"""Trains the model, saves it in Hugging Face's layout, and scores what was saved.

    python -m models.g2p_t5.training.train --data cmudict_g2p.tsv.xz --out g2p-t5

The defaults made the weights of this folder, on one H200. On a CPU, to see that it runs:

    ... --minutes 1 --batch 64 --words 500
"""

import argparse
import dataclasses
import itertools
import json
from pathlib import Path

import torch
import transformers
from transformers import AutoTokenizer, GenerationConfig, T5Config, T5ForConditionalGeneration

from models.g2p_t5.training.batches import Batches
from models.g2p_t5.training.decoding import evaluate
from models.g2p_t5.training.pronunciations import Pronunciations, read_pronunciations
from models.g2p_t5.training.tokenizer import EOS, MAX_TOKENS, PAD, make_tokenizer, make_vocabulary
from models.g2p_t5.training.trainer import Trainer, TrainingOptions

_TRAIN_SAMPLE = 2000


def make_model(vocab_size: int) -> T5ForConditionalGeneration:
    """A fresh model: 6.8 million parameters, gated GELU, the head tied to the embedding."""
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=vocab_size,
            d_model=256,
            d_kv=64,
            num_heads=4,
            d_ff=1024,
            num_layers=4,
            num_decoder_layers=2,
            feed_forward_proj="gated-gelu",
            dropout_rate=0.08,
            relative_attention_num_buckets=32,
            relative_attention_max_distance=64,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=PAD,
            tie_word_embeddings=True,
        )
    )


def save(model: T5ForConditionalGeneration, directory: Path) -> None:
    """Writes config.json, generation_config.json and model.safetensors (float16)."""
    model.generation_config = GenerationConfig(
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD, max_length=MAX_TOKENS
    )
    model.to(torch.float16).save_pretrained(directory)
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    # Old and new versions of transformers tell by different keys that the head's input is scaled.
    config |= {"tie_word_embeddings": True, "scale_decoder_outputs": True}
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")


def score(directory: Path, splits: dict[str, Pronunciations], device: str) -> dict[str, object]:
    """Error rates of a saved model, decoded greedily in float32."""
    torch.set_float32_matmul_precision("highest")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = T5ForConditionalGeneration.from_pretrained(directory, dtype=torch.float32)
    model = model.to(device).eval()
    known = dict(itertools.islice(splits["train"].items(), _TRAIN_SAMPLE))
    return {
        "valid": evaluate(model, tokenizer, splits["valid"]),
        "test": evaluate(model, tokenizer, splits["test"]),
        "train_sample": evaluate(model, tokenizer, known),
    }


def main() -> None:
    """Trains, saves, scores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="what prepare_data.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--words", type=int, help="use so many words of each split only")
    parser.add_argument("--seed", type=int, default=7)
    for field in dataclasses.fields(TrainingOptions):
        parser.add_argument(f"--{field.name}", type=field.type, default=field.default)
    arguments = vars(parser.parse_args())
    options = TrainingOptions(
        **{field.name: arguments[field.name] for field in dataclasses.fields(TrainingOptions)}
    )

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(arguments["seed"])
    torch.set_float32_matmul_precision("high")
    splits = read_pronunciations(arguments["data"])
    vocabulary = make_vocabulary(splits.values())
    for split, words in splits.items():
        splits[split] = dict(itertools.islice(words.items(), arguments["words"]))
    tokenizer = make_tokenizer(vocabulary)
    model = make_model(len(vocabulary)).to(device)
    batches = Batches(splits["train"], vocabulary, device, arguments["seed"], 0.25)
    record = Trainer(model, tokenizer, options).run(batches, splits["valid"])

    out = arguments["out"]
    save(model, out)
    tokenizer.save_pretrained(out)
    metrics = {
        **dataclasses.asdict(record),
        "parameters": sum(one.numel() for one in model.parameters()),
        "options": dataclasses.asdict(options),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        **score(out, splits, device),
    }
    (out / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(metrics))


if __name__ == "__main__":
    main()
