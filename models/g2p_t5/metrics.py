"""Phone and word error rates against the nearest of several reference pronunciations.

PER = edits / reference phones, WER = words that match none of their references; both in per cent.
"""

import dataclasses
import re
from collections.abc import Sequence

Phones = Sequence[str]

_STRESS = re.compile(r"\d")


@dataclasses.dataclass(frozen=True)
class ErrorRates:
    """Rates in per cent, with ARPAbet's stress digits and without."""

    per: float
    wer: float
    per_no_stress: float
    wer_no_stress: float


def edit_distance(one: Phones, other: Phones) -> int:
    """Least number of insertions, deletions and substitutions between two (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, start=1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(other, start=1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
            diagonal, row[j] = row[j], best
    return row[-1]


def without_stress(phones: Phones) -> list[str]:
    """The phones with their stress digits taken off: AH0 -> AH."""
    return [_STRESS.sub("", phone) for phone in phones]


def error_rates(hypotheses: Sequence[Phones], references: Sequence[Sequence[Phones]]) -> ErrorRates:
    """Scores one hypothesis a word against that word's references.

    A word has one or more references, none of them empty. Its nearest is the one with the fewest
    edits a phone; among equals, the first.
    """
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(f"{len(hypotheses)} hypotheses for {len(references)} words")
    per, wer = _rates(hypotheses, references)
    bare_per, bare_wer = _rates(
        [without_stress(phones) for phones in hypotheses],
        [[without_stress(phones) for phones in word] for word in references],
    )
    return ErrorRates(per, wer, bare_per, bare_wer)


def _rates(
    hypotheses: Sequence[Phones], references: Sequence[Sequence[Phones]]
) -> tuple[float, float]:
    edits = phones = wrong = 0
    for hypothesis, word in zip(hypotheses, references, strict=True):
        distances = [(edit_distance(hypothesis, reference), len(reference)) for reference in word]
        distance, length = min(distances, key=lambda pair: pair[0] / pair[1])
        edits += distance
        phones += length
        wrong += distance > 0
    return 100 * edits / phones, 100 * wrong / len(references)
