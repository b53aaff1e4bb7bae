"""Counts the tests of a CI run and prints `N passed, N failed` as the last line.

The folder given holds Bazel's build event files (*.json) and pytest's JUnit files (*.xml).
"""

import dataclasses
import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Counts:
    """How many test cases passed and failed."""

    passed: int = 0
    failed: int = 0


def count_junit(path: pathlib.Path) -> Counts:
    """Counts the cases of one JUnit file."""
    counts = Counts()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "notrun" or case.find("skipped") is not None:
            continue
        bad = case.find("failure") is not None or case.find("error") is not None
        counts.failed += bad
        counts.passed += not bad
    return counts


def count_result(result: dict) -> Counts:
    """Counts one test target, by its XML where it has one that agrees with its status."""
    passed = result.get("status") == "PASSED"
    counts = Counts()
    for output in result.get("testActionOutput", []):
        path = pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(output.get("uri", "")).path))
        if output.get("name") == "test.xml" and path.is_file() and path.stat().st_size:
            counts = count_junit(path)
    if passed and not counts.passed:
        counts.passed = 1
    # A crash or a time-out leaves no failed case behind.
    if not passed and not counts.failed:
        counts.failed = 1
    return counts


def count_events(path: pathlib.Path) -> Counts:
    """Counts the test results, and the tests that could not be built, of one Bazel run."""
    counts = Counts()
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if "testResult" in event:
            one = count_result(event["testResult"])
        elif event.get("testSummary", {}).get("overallStatus") in ("FAILED_TO_BUILD", "NO_STATUS"):
            one = Counts(failed=1)
        else:
            continue
        counts.passed += one.passed
        counts.failed += one.failed
    return counts


def main() -> None:
    """Sums over the files in the folder."""
    total = Counts()
    for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        counter = {".json": count_events, ".xml": count_junit}.get(path.suffix)
        if not counter:
            continue
        one = counter(path)
        print(f"ci: {path.stem}: {one.passed} passed, {one.failed} failed")
        total.passed += one.passed
        total.failed += one.failed
    print(f"{total.passed} passed, {total.failed} failed")


if __name__ == "__main__":
    main()
