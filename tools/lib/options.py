"""The `parameters` that config.pbtxt may carry for this backend."""

import dataclasses
from collections.abc import Iterable

from tools.lib.errors import ToolError

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class _Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def describe(self) -> str:
        return "one of " + ", ".join(self.words)

    def accepts(self, text: str) -> bool:
        return text in self.words


@dataclasses.dataclass(frozen=True)
class _Count:
    """A whole number from 1 to `maximum`."""

    maximum: int = _INT32_MAX

    def describe(self) -> str:
        return f"an integer from 1 to {self.maximum}"

    def accepts(self, text: str) -> bool:
        return text.isascii() and text.isdigit() and 1 <= int(text) <= self.maximum


OPTIONS: dict[str, _Choice | _Count] = {
    "engine": _Choice(("auto", "cpu", "cuda")),
    "max_active_sequences": _Count(),
    "max_queue_size": _Count(),
    "max_source_tokens": _Count(),
    "max_new_tokens": _Count(),
    "default_max_new_tokens": _Count(),
    "kv_cache_bytes": _Count(_INT64_MAX),
    "weights_dtype": _Choice(("float32", "float16", "bfloat16")),
    "cpu_threads": _Count(),
}


def parse_options(settings: Iterable[str]) -> dict[str, str]:
    """Turns key=value settings into checked options, in the order of the contract's table.

    An unknown or repeated key or a value out of range: ToolError naming it and what is allowed.
    """
    given: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ToolError(f"option {setting!r}: expected key=value")
        if key not in OPTIONS:
            raise ToolError(f"unknown option {key!r}; allowed are {', '.join(OPTIONS)}")
        if key in given:
            raise ToolError(f"option {key}: given twice")
        if not OPTIONS[key].accepts(value):
            raise ToolError(f"option {key}: {value!r} is not {OPTIONS[key].describe()}")
        given[key] = value
    return {key: given[key] for key in OPTIONS if key in given}
