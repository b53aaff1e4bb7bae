"""The driver's command line, as a process."""

import os
import subprocess
import sys

import pytest

from tools.lib.paths import room_file


def driver(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(room_file("benchmarks/engine/main.py")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--case=t5_huge",), ["case", "t5_1_5b", "flan_t5_xl"]),
        (("--engine=llama",), ["engine", "CTranslate2 float16"]),
        (("--prepare_only",), ["--models"]),
        (("--worker=absent/worker",), ["absent/worker", "--worker"]),
        (
            ("--engine=transformers bfloat16", "--transformers_python=absent_python"),
            ["absent_python", "transformers"],
        ),
    ],
)
def test_mistakes(arguments: tuple[str, ...], words: list[str]) -> None:
    result = driver(*arguments)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert not [word for word in words if word not in result.stderr + result.stdout]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
