"""Tokens and log-probabilities equal Hugging Face's, for every family, alone and in company."""

import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from tests.harness import golden, http_client
from tests.harness.client import Client, Generation, build_request
from tests.harness.fixtures import Boot, boot
from tests.harness.golden import Case
from tests.harness.model_repository import write_model

_FAMILIES = (
    "t5_v1_0",
    "t5_v1_1",
    "flan_silu",
    "mt5",
    "byt5",
    "umt5",
    "t5_fp16_overflow",
)
_TWO = "t5_two_instances"


def _write(repository: pathlib.Path) -> None:
    for name in _FAMILIES:
        write_model(repository, name, name)
    write_model(repository, _TWO, "t5_v1_0", instances=2)


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server with one model a family."""
    with boot(module_folder, write=_write, load=(*_FAMILIES, _TWO)) as b:
        yield b


def _start_all(
    client: Client, model: str, cases: Sequence[Case], **options: int
) -> list[Generation]:
    return [client.start(model, case.source, **options) for case in cases]


def _check_all(cases: Sequence[Case], generations: Sequence[Generation]) -> None:
    for case, generation in zip(cases, generations, strict=True):
        generation.wait().check_answer(case.answer)
        parameters = generation.parameters
        assert parameters["finish_reason"] == case.finish_reason
        assert parameters["prompt_tokens"] == len(case.source)


@pytest.mark.parametrize("family", _FAMILIES)
def test_rows_alone(booted: Boot, family: str) -> None:
    """One request after another; generation_config's max_length is the limit."""
    for case in golden.load(family).rows:
        _check_all([case], [booted.client.generate(family, case.source)])


@pytest.mark.parametrize("family", _FAMILIES)
def test_rows_together(booted: Boot, family: str) -> None:
    """The same in one running batch."""
    rows = golden.load(family).rows
    _check_all(rows, _start_all(booted.client, family, rows))


@pytest.mark.parametrize("family", _FAMILIES)
def test_max_length_counts_the_prefix(booted: Boot, family: str) -> None:
    """max_length 6 is five new tokens."""
    rows = golden.load(family).short_rows
    generations = _start_all(booted.client, family, rows, max_length=6)
    _check_all(rows, generations)
    assert any(len(g.ids) == 5 and g.parameters["finish_reason"] == "length" for g in generations)


def test_max_new_tokens_wins_over_max_length(booted: Boot) -> None:
    """Both given: max_length is not looked at. max_tokens is the same option."""
    case = golden.load("t5_v1_0").rows[2]
    for name in ("max_new_tokens", "max_tokens"):
        generation = booted.client.generate("t5_v1_0", case.source, max_length=3, **{name: 4})
        generation.check_answer(case.answer[:4])
        assert generation.parameters["finish_reason"] == "length"


@pytest.mark.parametrize("family", _FAMILIES)
def test_early_eos(booted: Boot, family: str) -> None:
    """A source of EOS alone is answered by one EOS, not by two and not by none."""
    case = golden.load(family).early_eos
    assert case.answer == (case.eos_id,)
    _check_all([case], [booted.client.generate(family, case.source)])


@pytest.mark.parametrize("family", _FAMILIES)
def test_padding_changes_nothing(booted: Boot, family: str) -> None:
    """Pads behind the source are ignored, however many; prompt_tokens does not count them."""
    golden_ = golden.load(family)
    case, pads = golden_.padded
    sources = [[*case.source, *[golden_.pad_id] * count] for count in pads]
    generations = [booted.client.start(family, source, return_logprobs=True) for source in sources]
    _check_all([case] * len(pads), generations)
    for generation in generations:
        np.testing.assert_allclose(generation.logprobs, generations[0].logprobs, atol=1e-4)


@pytest.mark.parametrize("family", ["t5_v1_0", "umt5"])
def test_beyond_the_last_relative_bucket(booted: Boot, family: str) -> None:
    """More than 128 tokens on both sides, among short requests; EOS is banned until the end."""
    golden_ = golden.load(family)
    case, tokens = golden_.long
    assert min(len(case.source), len(case.answer)) > 128
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens}
    long = booted.client.start(family, case.source, **options)
    short = _start_all(booted.client, family, golden_.rows)
    _check_all(golden_.rows, short)
    _check_all([case], [long])


@pytest.mark.parametrize("model", ["t5_v1_0", _TWO])
def test_64_streams_at_once(booted: Boot, model: str) -> None:
    """More streams than slots, from four connections, each exact."""
    cases = golden.load("t5_v1_0").many
    assert len(cases) == 64
    clients = [Client(booted.server.grpc_url) for _ in range(4)]
    try:
        starts = enumerate(cases)
        _check_all(cases, [clients[i % 4].start(model, case.source) for i, case in starts])
    finally:
        for client in clients:
            client.close()


def test_both_instances_work(booted: Boot) -> None:
    """Load spreads over the instances of a model."""
    case, tokens = golden.load("t5_v1_0").long
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens}
    generations = [booted.client.start(_TWO, case.source, **options) for _ in range(40)]
    _check_all([case] * 40, generations)
    samples = booted.metrics().matching("seq2seq_generated_tokens_total", model=_TWO)
    assert len({s.labels["instance"] for s in samples}) == 2
    assert all(s.value > 0 for s in samples), samples


@pytest.mark.parametrize("family", _FAMILIES)
def test_logprobs(booted: Boot, family: str) -> None:
    """Each token comes with the log-softmax of its raw logits; finite where fp16 would overflow."""
    golden_ = golden.load(family)
    case = golden_.rows[0]
    expected = golden.log_softmax(golden_.row0_logits)[np.arange(len(case.answer)), case.answer]
    company = _start_all(booted.client, family, golden_.rows[1:])
    generation = booted.client.generate(family, case.source, return_logprobs=True)
    generation.check_answer(case.answer)
    np.testing.assert_allclose(generation.logprobs, expected, atol=1e-3)
    for response in generation.responses:
        assert len(response.logprobs) == len(response.ids)
    for other in company:
        assert other.wait().logprobs == ()


def test_logprobs_in_company(booted: Boot) -> None:
    """Alone and in a batch they agree within 1e-4."""
    cases = golden.load("t5_v1_0").many[:16]
    alone = [booted.client.generate("t5_v1_0", c.source, return_logprobs=True) for c in cases]
    together = [booted.client.start("t5_v1_0", c.source, return_logprobs=True) for c in cases]
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one.logprobs, other.wait().logprobs, atol=1e-4)


@pytest.mark.parametrize("with_start", [True, False])
def test_decoder_input_ids(booted: Boot, with_start: bool) -> None:
    """A forced prefix is continued and not returned; the start token may be left out."""
    golden_ = golden.load("t5_v1_0")
    for case in golden_.rows:
        for count in range(len(case.answer)):
            prefix = [*[golden_.start_id] * with_start, *case.answer[:count]]
            request = build_request("t5_v1_0", case.source, decoder_input_ids=prefix)
            booted.client.send(request).wait().check_answer(case.answer[count:])


def test_max_length_counts_a_forced_prefix(booted: Boot) -> None:
    """Start token and three forced tokens leave two of max_length 6."""
    case = golden.load("t5_v1_0").rows[2]
    request = build_request(
        "t5_v1_0", case.source, {"max_length": 6}, decoder_input_ids=case.answer[:3]
    )
    booted.client.send(request).wait().check_answer(case.answer[3:5])


@pytest.mark.parametrize("name", ["min_new_tokens", "min_length"])
def test_minimum(booted: Boot, name: str) -> None:
    """EOS is banned until then; what comes before it is untouched. min_length counts the prefix."""
    case = golden.load("t5_v1_0").rows[1]
    wanted = len(case.answer) + 2
    options = {name: wanted + (name == "min_length")}
    generation = booted.client.generate("t5_v1_0", case.source, **options)
    assert len(generation.ids) >= wanted
    assert case.eos_id not in generation.ids[:wanted]
    assert generation.ids[: len(case.answer) - 1] == case.answer[:-1]


def test_one_response_without_stream(booted: Boot) -> None:
    """Not streamed: everything in one response with FINAL, the same tokens."""
    for case in golden.load("t5_v1_1").rows:
        generation = booted.client.generate("t5_v1_1", case.source, stream=False)
        _check_all([case], [generation])
        assert len(generation.responses) == 1


def test_http_generate(booted: Boot) -> None:
    """The HTTP endpoints give the same tokens; size-one outputs come as scalars."""
    golden_ = golden.load("mt5")
    for case in [*golden_.rows, golden_.early_eos]:
        body = {"input_ids": list(case.source), "stream": False, "id": "a-name"}
        status, answer = http_client.generate(booted.server.http_url, "mt5", body)
        assert status == 200, answer
        assert tuple(http_client.ids_of(answer)) == case.answer
        assert answer["finish_reason"] == case.finish_reason
        assert answer["completion_tokens"] == len(case.answer)
        body = {"input_ids": list(case.source), "return_logprobs": True}
        events = http_client.generate_stream(booted.server.http_url, "mt5", body)
        assert tuple(i for e in events for i in http_client.ids_of(e)) == case.answer
        assert events[-1]["finish_reason"] == case.finish_reason
