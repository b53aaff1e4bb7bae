"""What is printed for a stream."""

import io
import json
import sys
from collections.abc import Iterator

import pytest

from tools.lib.client import RequestError, StreamResponse
from tools.lib.generating import print_json, print_text
from tools.lib.paths import room_file
from tools.lib.text import TextCodec

# In the vocabulary of models/g2p_t5: a, b, c and </s>.
RESPONSES = [
    StreamResponse([5], [], {}, False),
    StreamResponse([6, 7], [-0.5, -0.25], {}, False),
    StreamResponse([1], [], {"finish_reason": "eos"}, True),
]


@pytest.fixture(name="codec")
def fixture_codec() -> TextCodec:
    return TextCodec(room_file("models/g2p_t5/checkpoint"))


class Recorder(io.StringIO):
    """Notes what was flushed together."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed: list[str] = []

    def flush(self) -> None:
        self.flushed.append(self.getvalue())


def test_text_appears_piece_by_piece(codec: TextCodec) -> None:
    out = Recorder()
    print_text(RESPONSES, codec, out)
    assert out.flushed == ["a", "a b c", "a b c", "a b c\n"]


def test_ids_are_printed_without_a_tokenizer() -> None:
    out = io.StringIO()
    print_text(RESPONSES, None, out)
    assert out.getvalue().split() == ["5", "6", "7", "1"]


def test_an_error_midway_starts_a_line_of_its_own(codec: TextCodec) -> None:
    def responses() -> Iterator[StreamResponse]:
        yield RESPONSES[0]
        raise RequestError("INTERNAL", "gone")

    out = io.StringIO()
    with pytest.raises(RequestError):
        print_text(responses(), codec, out)
    assert out.getvalue() == "a\n"


def test_one_json_object_a_response(codec: TextCodec) -> None:
    out = io.StringIO()
    print_json(RESPONSES, codec, out)
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"output_ids": [5], "text": "a", "parameters": {}, "final": False},
        {
            "output_ids": [6, 7],
            "text": " b c",
            "parameters": {},
            "final": False,
            "logprobs": [-0.5, -0.25],
        },
        {"output_ids": [1], "text": "", "parameters": {"finish_reason": "eos"}, "final": True},
    ]


def test_json_text_is_null_without_a_tokenizer() -> None:
    out = io.StringIO()
    print_json(RESPONSES[:1], None, out)
    assert json.loads(out.getvalue())["text"] is None


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
