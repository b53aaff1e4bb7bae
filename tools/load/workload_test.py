"""Requests as a server reads them."""

import sys

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tools.lib.errors import ToolError
from tools.load.lengths import Lengths, parse_lengths
from tools.load.workload import Workload, make_requests

WORKLOAD = Workload("m", 500, Lengths(4, 9), Lengths(16, 32), parameters={"stream": False}, seed=7)


def parsed(workload: Workload, count: int, part: int = 0) -> list[service_pb2.ModelInferRequest]:
    raw = make_requests(workload, count, part)
    return [service_pb2.ModelInferRequest.FromString(one.message) for one in raw]


def ids(request: service_pb2.ModelInferRequest) -> list[int]:
    (tensor,) = request.inputs
    (raw,) = request.raw_input_contents
    values = np.frombuffer(raw, "<i4").tolist()
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == (
        "input_ids",
        "INT32",
        [len(values)],
    )
    return values


def test_lengths_ids_and_options() -> None:
    requests = parsed(WORKLOAD, 400)
    for request in requests:
        *source, last = ids(request)
        assert last == 1
        assert all(3 <= token < 500 for token in source)
        new_tokens = request.parameters["max_new_tokens"].int64_param
        assert request.parameters["min_new_tokens"].int64_param == new_tokens
        assert request.parameters["stream"].bool_param is False
        assert request.model_name == "m"
    # All lengths of both ranges come up, and none besides.
    assert {len(ids(request)) for request in requests} == set(range(4, 10))
    asked = {request.parameters["max_new_tokens"].int64_param for request in requests}
    assert asked == set(range(16, 33))


def test_parts_differ_and_repeat_themselves() -> None:
    assert make_requests(WORKLOAD, 5, 0) == make_requests(WORKLOAD, 5, 0)
    assert not set(make_requests(WORKLOAD, 5, 0)) & set(make_requests(WORKLOAD, 5, 1))


def test_eos_may_end_an_answer() -> None:
    workload = Workload("m", 500, Lengths(4, 4), Lengths(8, 8), ban_eos=False)
    (request,) = parsed(workload, 1)
    assert "min_new_tokens" not in request.parameters
    assert make_requests(workload, 1, 0)[0].new_tokens is None


def test_a_request_knows_how_many_tokens_it_asks_for() -> None:
    asked = [one.parameters["max_new_tokens"].int64_param for one in parsed(WORKLOAD, 20)]
    assert [one.new_tokens for one in make_requests(WORKLOAD, 20, 0)] == asked


def test_a_source_of_eos_alone() -> None:
    (request,) = parsed(Workload("m", 500, Lengths(1, 1), Lengths(8, 8)), 1)
    assert ids(request) == [1]


def test_what_cannot_be_asked_is_named() -> None:
    with pytest.raises(ToolError, match="vocab_size 3"):
        Workload("m", 3, Lengths(1, 1), Lengths(1, 1))
    with pytest.raises(ToolError, match=r"max_new_tokens.*--new_tokens"):
        Workload("m", 9, Lengths(1, 1), Lengths(1, 1), parameters={"max_new_tokens": 4})


@pytest.mark.parametrize(("text", "low", "high"), [("128", 128, 128), ("64-256", 64, 256)])
def test_lengths_in_text(text: str, low: int, high: int) -> None:
    lengths = parse_lengths("source_tokens", text)
    assert (lengths, str(lengths)) == (Lengths(low, high), text)


@pytest.mark.parametrize("text", ["", "0", "0-4", "9-4", "-4", "4-", "many", "1.5", "1 2"])
def test_bad_lengths_are_named(text: str) -> None:
    with pytest.raises(ToolError, match=r"source_tokens .*: expected"):
        parse_lengths("source_tokens", text)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
