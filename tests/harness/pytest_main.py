"""Runs pytest on the files that the command line names: every server test's main under Bazel."""

import os
import sys

import pytest


def main() -> int:
    """Returns pytest's exit status."""
    # The scratch folder that Bazel gives a test is removed after it.
    scratch = os.environ.get("TEST_TMPDIR")
    options = [f"--basetemp={scratch}/pytest"] if scratch else []
    report = os.environ.get("XML_OUTPUT_FILE")
    if report:
        options.append(f"--junitxml={report}")
    fixed = ["--verbose", "--durations=10", "-p", "no:cacheprovider", "--import-mode=importlib"]
    return pytest.main([*fixed, *options, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
