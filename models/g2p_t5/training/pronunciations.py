"""The table that prepare_data.py writes, read back."""

import lzma
from pathlib import Path

# word -> its pronunciations, each a list of phones, in the dictionary's order.
Pronunciations = dict[str, list[list[str]]]


def read_pronunciations(path: Path) -> dict[str, Pronunciations]:
    """Returns the splits train, valid and test."""
    splits: dict[str, Pronunciations] = {"train": {}, "valid": {}, "test": {}}
    with lzma.open(path, "rt", encoding="utf-8") as table:
        for line in table:
            split, word, pronunciation = line.rstrip("\n").split("\t")
            splits[split].setdefault(word, []).append(pronunciation.split())
    return splits
