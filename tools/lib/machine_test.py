"""What is said of the machine can be written to a result, and is true where that can be known."""

import json
import os
import subprocess
import sys

import pytest

from tools.lib import machine, process_facts


def test_facts_are_json_values() -> None:
    facts = json.loads(json.dumps(machine.machine()))
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert facts["cpu"]
    assert isinstance(facts["gpus"], list)


def test_the_commit_of_copied_sources_is_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEQ2SEQ_COMMIT", "0123456789ab")
    assert machine.commit() == "0123456789ab"
    monkeypatch.delenv("SEQ2SEQ_COMMIT")
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", "/nowhere")
    assert machine.commit() == "unknown"


def test_processor_time_of_this_process() -> None:
    before = process_facts.cpu_seconds(os.getpid())
    times = os.times()
    while os.times().user + os.times().system < times.user + times.system + 0.1:
        pass
    spent = process_facts.cpu_seconds(os.getpid()) - before
    # Both count in hundredths of a second.
    assert 0.08 <= spent < 5


_BURN_IN_CHILD = """
import subprocess, sys
burn = "import os\\nwhile sum(os.times()[:2]) < 0.3: pass\\nprint(flush=True)\\ninput()"
child = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE)
input()
child.communicate(b"\\n")
print(flush=True)
input()
"""


def test_processor_time_of_children() -> None:
    """A child computes for 0.3 s; that counts while it lives and once it has ended."""
    command = [sys.executable, "-c", _BURN_IN_CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        alive = process_facts.family_cpu_seconds(parent.pid)
        assert alive - process_facts.cpu_seconds(parent.pid) >= 0.28
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        parent.stdout.readline()
        assert process_facts.family_cpu_seconds(parent.pid) >= alive
        parent.communicate(b"\n")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
