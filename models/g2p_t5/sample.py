"""The fixed sample of held-out words and what transformers makes of it (testdata/)."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class SampleWord:
    """A held-out word, all its reference pronunciations, and transformers' answer.

    `golden_ids` are generated greedily in float32: what follows the start token, EOS included.
    """

    word: str
    references: tuple[tuple[str, ...], ...]
    golden_ids: tuple[int, ...]


def read_sample(directory: Path) -> list[SampleWord]:
    """Reads sample.tsv and golden.tsv, which hold the same words in the same order.

    sample.tsv is word, pronunciation (one line a pronunciation), golden.tsv is word, ids.
    """
    references: dict[str, list[tuple[str, ...]]] = {}
    for word, pronunciation in read_rows(directory / "sample.tsv"):
        references.setdefault(word, []).append(tuple(pronunciation.split()))
    golden = {
        word: tuple(map(int, ids.split())) for word, ids in read_rows(directory / "golden.tsv")
    }
    if list(golden) != list(references):
        raise ValueError(f"{directory}: sample.tsv and golden.tsv do not hold the same words")
    return [SampleWord(word, tuple(references[word]), golden[word]) for word in references]


def read_rows(path: Path) -> list[tuple[str, str]]:
    """The lines of a file of two tab-separated columns."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        left, right = line.split("\t")
        rows.append((left, right))
    return rows
