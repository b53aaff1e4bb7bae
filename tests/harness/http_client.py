"""Triton's generate and generate_stream, through the standard library and through curl."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

_TIMEOUT_SECONDS = 120


def post(url: str, path: str, body: Mapping[str, Any]) -> tuple[int, str]:
    """(status, text) of one POST of JSON to http://<url><path>."""
    connection = http.client.HTTPConnection(url, timeout=_TIMEOUT_SECONDS)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def generate(url: str, model: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """(status, answer) of generate, which wants "stream": false."""
    status, text = post(url, f"/v2/models/{model}/generate", body)
    return status, json.loads(text)


def events(text: str) -> list[dict[str, Any]]:
    """The JSON of each server-sent event in `text`."""
    lines = text.splitlines()
    return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]


def generate_stream(url: str, model: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All events of generate_stream."""
    return events(post(url, f"/v2/models/{model}/generate_stream", body)[1])


def ids_of(event: Mapping[str, Any]) -> list[int]:
    """output_ids of an event; one token comes as a scalar."""
    value = event.get("output_ids", [])
    return value if isinstance(value, list) else [value]


def _curl_command(url: str, path: str, body: str) -> list[str]:
    """The command of curl where the machine has it, else of this file, which does the same."""
    curl = shutil.which("curl")
    if curl is None:
        return [sys.executable, "-m", "tests.harness.http_client", url, path, body]
    fixed = ["--no-buffer", "--silent", "--show-error", "--max-time", str(_TIMEOUT_SECONDS)]
    return [curl, *fixed, "--data", body, f"http://{url}{path}"]


def start_curl(
    url: str, model: str, body: Mapping[str, Any], output: pathlib.Path | None = None
) -> subprocess.Popen[str]:
    """Starts curl -N on generate_stream; its output goes to a pipe or to the file."""
    command = _curl_command(url, f"/v2/models/{model}/generate_stream", json.dumps(body))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with contextlib.ExitStack() as files:
        stdout = files.enter_context(output.open("w")) if output else subprocess.PIPE
        return subprocess.Popen(
            command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment
        )


def _copy_stream(url: str, path: str, body: str) -> None:
    """Prints the lines of the answer as they come."""
    connection = http.client.HTTPConnection(url, timeout=_TIMEOUT_SECONDS)
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    for line in connection.getresponse():
        print(line.decode(), end="", flush=True)


if __name__ == "__main__":
    _copy_stream(*sys.argv[1:])
