"""The command `generate`, as a process against a scripted server."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.lib.paths import room_file
from tools.testing.fake_inference_server import answer, error, serving

G2P = room_file("models/g2p_t5/checkpoint")
# In the vocabulary of models/g2p_t5.
HELLO = [12, 9, 16, 16, 19, 1]


def start(url: str, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(room_file("tools/generate.py")), f"--url={url}", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def generate(url: str, *arguments: str) -> tuple[int, str, str]:
    process = start(url, *arguments)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def two_letters(_: object) -> Iterator[Any]:
    yield answer([5])
    yield answer([6, 1], final=True, finish_reason="eos")


def test_text_in_text_out() -> None:
    with serving(two_letters) as (fake, url):
        result = generate(url, "--model=other", "--text=hello", f"--tokenizer={G2P}")
    assert result == (0, "a b\n", "")
    (request,) = fake.requests
    assert request.raw_input_contents[0] == struct.pack("<6i", *HELLO)
    assert request.parameters["response_interval_ms"].int64_param == 0


def test_the_tokenizer_of_a_model_of_this_repository_is_known() -> None:
    with serving(two_letters) as (_, url):
        assert generate(url, "--model=g2p_t5", "--text=hello") == (0, "a b\n", "")


def test_ids_in_json_out() -> None:
    with serving(two_letters) as (fake, url):
        code, out, err = generate(
            url, "--model=m", "--input_ids=5,1", "--json", "--param=top_p=0.5", "--param=seed=7"
        )
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"output_ids": [5], "text": None, "parameters": {}, "final": False},
        {
            "output_ids": [6, 1],
            "text": None,
            "parameters": {"finish_reason": "eos"},
            "final": True,
        },
    ]
    (request,) = fake.requests
    assert request.parameters["top_p"].double_param == 0.5
    assert request.parameters["seed"].int64_param == 7


def test_an_error_of_the_server_is_one_line() -> None:
    with serving(lambda _: iter([error("INVALID_ARG: top_p is 2")])) as (_, url):
        result = generate(url, "--model=m", "--input_ids=5,1")
    assert result == (1, "", "error: INVALID_ARG: top_p is 2\n")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "--text"),
        (("--text=a", "--input_ids=1"), "exactly one"),
        (("--text=a",), "--tokenizer"),
        (("--text=a", "--tokenizer=/nowhere"), "tokenizer.json"),
        (("--input_ids=a",), "'a'"),
        (("--input_ids=1", "--param=x"), "name=value"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], word: str) -> None:
    code, out, err = generate("localhost:1", "--model=m", *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert word in err


def test_ctrl_c_cancels() -> None:
    hold = threading.Event()

    def answers(_: object) -> Iterator[Any]:
        yield answer([5])
        hold.wait(60)

    with serving(answers) as (fake, url):
        process = start(url, "--model=g2p_t5", "--input_ids=5,1", "--json")
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert fake.cancelled.wait(10)
        hold.set()
    assert (process.returncode, err) == (128 + signal.SIGINT, "")


def test_relative_tokenizer_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "tokenizer.json").symlink_to(G2P / "tokenizer.json")
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    with serving(two_letters) as (_, url):
        assert generate(url, "--model=m", "--text=hello", "--tokenizer=t") == (0, "a b\n", "")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
