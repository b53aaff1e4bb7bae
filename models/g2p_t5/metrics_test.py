"""Error rates against cases worked out by hand."""

import sys

import pytest

from models.g2p_t5.metrics import edit_distance, error_rates, without_stress


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ("", "", 0),
        ("abc", "", 3),
        ("", "abc", 3),
        ("kitten", "sitting", 3),
        ("flaw", "lawn", 2),
        ("abc", "abc", 0),
        ("abcdef", "azced", 3),
    ],
)
def test_edit_distance(one: str, other: str, distance: int) -> None:
    assert edit_distance(one, other) == edit_distance(other, one) == distance


def test_without_stress() -> None:
    assert without_stress(["HH", "AH0", "L", "OW1"]) == ["HH", "AH", "L", "OW"]


def test_rates() -> None:
    # Right; one stress wrong in three phones; nearest reference (two phones) two edits away.
    hypotheses = [["K", "AE1", "T"], ["D", "AO0", "G"], ["T", "AH0"]]
    references = [[["K", "AE1", "T"]], [["D", "AO1", "G"]], [["B", "IY1"], ["B", "IY1", "S", "Z"]]]
    rates = error_rates(hypotheses, references)
    assert rates.per == pytest.approx(100 * 3 / 8)
    assert rates.wer == pytest.approx(100 * 2 / 3)
    assert rates.per_no_stress == pytest.approx(100 * 2 / 8)
    assert rates.wer_no_stress == pytest.approx(100 * 1 / 3)


def test_the_nearest_reference_counts() -> None:
    # Two edits of four phones are nearer than two of three, though given later.
    rates = error_rates([["A", "B", "C", "D"]], [[["A", "B", "X"], ["A", "B", "Y", "Z"]]])
    assert rates.per == pytest.approx(50.0)
    assert error_rates([["A"]], [[["B"], ["A"]]]).wer == 0


def test_refuses_lists_that_do_not_match() -> None:
    with pytest.raises(ValueError, match="1 hypotheses for 2 words"):
        error_rates([["A"]], [[["A"]], [["A"]]])
    with pytest.raises(ValueError, match="0 hypotheses for 0 words"):
        error_rates([], [])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
