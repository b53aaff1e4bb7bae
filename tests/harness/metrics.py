"""Reads the backend's metrics from the server's /metrics."""

import dataclasses
import re
import urllib.request
from collections.abc import Callable

from tests.harness.server import wait_until

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclasses.dataclass(frozen=True)
class Sample:
    """One line of the exposition format."""

    name: str
    labels: dict[str, str]
    value: float


@dataclasses.dataclass(frozen=True)
class Metrics:
    """All samples of one scrape."""

    samples: list[Sample]

    def matching(self, name: str, **labels: str) -> list[Sample]:
        """The samples with this name whose labels include `labels`."""
        wanted = labels.items()
        return [s for s in self.samples if s.name == name and wanted <= s.labels.items()]

    def total(self, name: str, **labels: str) -> float:
        """Their sum; 0 when there is none."""
        return sum(s.value for s in self.matching(name, **labels))


def parse(text: str) -> Metrics:
    """Parses Prometheus' text format."""
    samples = []
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match:
            name, labels, value = match.groups()
            samples.append(Sample(name, dict(_LABEL.findall(labels or "")), float(value)))
    return Metrics(samples)


def fetch(url: str) -> Metrics:
    """One scrape."""
    with urllib.request.urlopen(url, timeout=10) as response:
        return parse(response.read().decode())


def wait_for(url: str, condition: Callable[[Metrics], bool], seconds: float, what: str) -> Metrics:
    """Scrapes until `condition` holds and returns that scrape; TimeoutError after `seconds`."""
    found: list[Metrics] = []

    def holds() -> bool:
        found[:] = [fetch(url)]
        return condition(found[0])

    wait_until(holds, seconds, what)
    return found[0]
