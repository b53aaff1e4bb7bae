"""Sampled tokens follow the distribution that Hugging Face's logits and filters define.

Each check draws the first token of one source thousands of times, with the seeds 0, 1, 2, ..., and
compares the counts with probabilities computed here from transformers' logits by a chi-square test.
The seeds are fixed, so a result never changes from run to run.
"""

import dataclasses
import math
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest

from tests.harness import golden
from tests.harness.client import OptionValue, build_request
from tests.harness.fixtures import Boot, boot
from tests.harness.model_repository import write_model

_MODEL = "t5"
_DRAWS = 3000
_HOT = 4.0  # a temperature at which the decided toy model has many likely tokens


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server whose queue takes all draws at once."""

    def write(repository: pathlib.Path) -> None:
        options = {"max_queue_size": str(2 * _DRAWS), "max_active_sequences": "64"}
        write_model(repository, _MODEL, "t5_v1_0", options=options)

    with boot(module_folder, write=write, load=[_MODEL]) as b:
        yield b


@dataclasses.dataclass(frozen=True)
class Filters:
    """Sampling options, applied in the library's order; each sees what the one before left."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0

    def options(self) -> dict[str, OptionValue]:
        """The request options that say the same."""
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.default != getattr(self, f.name)
        }

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """The distribution over the vocabulary, float64."""
        p = np.exp(golden.log_softmax(logits / self.temperature))
        if self.top_k:
            p = _keep(p, p >= np.sort(p)[-self.top_k])
        if self.top_p < 1:
            descending = np.argsort(-p, kind="stable")
            before = np.cumsum(p[descending]) - p[descending]
            p = _keep_indices(p, descending[before < self.top_p])
        if self.min_p:
            p = _keep(p, p >= self.min_p * p.max())
        if self.typical_p < 1:
            surprise = -np.log(np.where(p > 0, p, 1))
            distance = np.where(p > 0, np.abs(surprise - (p * surprise).sum()), np.inf)
            nearest = np.argsort(distance, kind="stable")
            before = np.cumsum(p[nearest]) - p[nearest]
            p = _keep_indices(p, nearest[before < self.typical_p])
        return p


def _keep(p: np.ndarray, mask: np.ndarray) -> np.ndarray:
    kept = np.where(mask, p, 0.0)
    return kept / kept.sum()


def _keep_indices(p: np.ndarray, indices: np.ndarray) -> np.ndarray:
    mask = np.zeros(len(p), bool)
    mask[indices] = True
    return _keep(p, mask)


def _first_tokens(booted: Boot, options: dict[str, OptionValue], draws: int) -> np.ndarray:
    """The first sampled token for each seed in 0 .. draws - 1."""
    source = golden.load("t5_v1_0").rows[0].source
    requests = []
    for seed in range(draws):
        request = build_request(_MODEL, source, {**options, "seed": seed, "max_new_tokens": 1})
        request.id = str(seed)
        requests.append(request)
    exchange = booted.client.exchange(requests)
    assert not exchange.errors
    drawn = [exchange.ids(str(seed)) for seed in range(draws)]
    assert all(len(ids) == 1 for ids in drawn)
    return np.asarray(drawn)[:, 0]


def _chi_square_limit(degrees: int) -> float:
    """The value that chi-square exceeds with probability 1e-5 (Wilson and Hilferty's formula)."""
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + 4.265 * math.sqrt(spread)) ** 3


def _check_frequencies(drawn: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square over the tokens that are expected five times or more; the rest is one cell."""
    counts = np.bincount(drawn, minlength=len(probabilities))
    impossible = probabilities == 0
    assert counts[impossible].sum() == 0, np.flatnonzero(counts * impossible)
    expected = probabilities * len(drawn)
    rare = expected < 5
    cells = np.append(counts[~rare], counts[rare].sum())
    means = np.append(expected[~rare], expected[rare].sum())
    cells, means = cells[means > 0], means[means > 0]
    statistic = ((cells - means) ** 2 / means).sum()
    assert len(cells) > 2
    assert statistic < _chi_square_limit(len(cells) - 1), (statistic, len(cells))


@pytest.mark.parametrize(
    "filters",
    [
        Filters(temperature=_HOT),
        Filters(temperature=_HOT, top_k=7),
        Filters(temperature=_HOT, top_p=0.6),
        Filters(temperature=2 * _HOT, min_p=0.2),
        Filters(temperature=_HOT, typical_p=0.7),
        Filters(temperature=2 * _HOT, top_k=40, top_p=0.9, min_p=0.05),
    ],
    ids=lambda f: " ".join(f"{k}={v}" for k, v in f.options().items()),
)
def test_frequencies(booted: Boot, filters: Filters) -> None:
    """Counts against softmax over transformers' logits."""
    probabilities = filters.probabilities(golden.load("t5_v1_0").row0_logits[0])
    drawn = _first_tokens(booted, filters.options(), _DRAWS)
    _check_frequencies(drawn, probabilities)


def test_the_check_can_fail(booted: Boot) -> None:
    """Draws at another temperature are told apart."""
    probabilities = Filters(temperature=_HOT).probabilities(golden.load("t5_v1_0").row0_logits[0])
    drawn = _first_tokens(booted, {"temperature": 0.75 * _HOT}, _DRAWS)
    with pytest.raises(AssertionError):
        _check_frequencies(drawn, probabilities)


def test_same_seed_same_tokens_in_any_company(booted: Boot) -> None:
    """Alone, and amid sixteen others of other lengths, options and seeds."""
    cases = golden.load("t5_v1_0").many
    options: dict[str, OptionValue] = {"temperature": _HOT, "seed": 12345, "max_new_tokens": 20}
    alone = booted.client.generate(_MODEL, cases[9].source, **options)
    assert alone.parameters["seed"] == 12345
    for _ in range(5):
        others = [
            booted.client.start(_MODEL, case.source, temperature=2.0, seed=i)
            for i, case in enumerate(cases[:16])
        ]
        again = booted.client.generate(_MODEL, cases[9].source, **options)
        assert again.ids == alone.ids
        for other in others:
            assert other.wait().errors == []


def test_different_seeds_differ(booted: Boot) -> None:
    """Thirty seeds give (nearly) thirty answers."""
    source = golden.load("t5_v1_0").rows[2].source
    options = {"temperature": _HOT, "max_new_tokens": 20, "min_new_tokens": 20}
    generations = [booted.client.start(_MODEL, source, seed=s, **options) for s in range(30)]
    assert len({g.wait().ids for g in generations}) >= 29


def test_drawn_seed_is_reported_and_replays(booted: Boot) -> None:
    """Without a seed one is drawn a request; random_seed, the other name, replays it."""
    source = golden.load("t5_v1_0").rows[2].source
    options = {"temperature": _HOT, "max_new_tokens": 20, "min_new_tokens": 20}
    first, second = (booted.client.generate(_MODEL, source, **options) for _ in range(2))
    assert first.parameters["seed"] != second.parameters["seed"]
    assert first.ids != second.ids
    replay = booted.client.generate(_MODEL, source, random_seed=first.parameters["seed"], **options)
    assert replay.ids == first.ids


@pytest.mark.parametrize("seed", [0, -1, -(2**63), 2**63 - 1])
def test_every_int64_is_a_seed(booted: Boot, seed: int) -> None:
    """Negative ones and the ends of the range, too; the response repeats it."""
    source = golden.load("t5_v1_0").rows[2].source
    generation = booted.client.generate(_MODEL, source, temperature=_HOT, seed=seed)
    assert generation.errors == []
    assert generation.parameters["seed"] == seed


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 0},
        {"seed": 3},
        {"do_sample": False, "temperature": 3.0},
        {"do_sample": False, "top_k": 5},
        {"top_k": 1, "temperature": _HOT},
    ],
    ids=str,
)
def test_greedy_all_the_same(booted: Boot, options: dict[str, OptionValue]) -> None:
    """What does not ask for sampling does not get it; top_k 1 leaves no choice."""
    case = golden.load("t5_v1_0").rows[2]
    generation = booted.client.generate(_MODEL, case.source, **options)
    generation.check_answer(case.answer)


@pytest.mark.parametrize(
    "options",
    [{"do_sample": True}, {"temperature": 1}, {"top_k": 0}, {"top_p": 1.0}, {"min_p": 0.0}],
    ids=str,
)
def test_what_asks_for_sampling(booted: Boot, options: dict[str, OptionValue]) -> None:
    """Sampled requests carry their seed; integers pass where a double is wanted."""
    source = golden.load("t5_v1_0").rows[2].source
    generation = booted.client.generate(_MODEL, source, **options)
    assert generation.errors == []
    assert "seed" in generation.parameters


def test_logprobs_are_of_the_raw_logits(booted: Boot) -> None:
    """Temperature and filters do not change the reported log-probabilities."""
    golden_ = golden.load("t5_v1_0")
    raw = golden.log_softmax(golden_.row0_logits[0])
    for seed in range(20):
        generation = booted.client.generate(
            _MODEL,
            golden_.rows[0].source,
            temperature=_HOT,
            top_k=5,
            seed=seed,
            max_new_tokens=1,
            return_logprobs=True,
        )
        np.testing.assert_allclose(generation.logprobs, raw[list(generation.ids)], atol=1e-3)
