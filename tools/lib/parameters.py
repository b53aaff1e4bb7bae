"""name=value settings of a request, typed as Triton's request parameters."""

import re
from collections.abc import Iterable

from tools.lib.errors import ToolError

Parameter = int | float | bool | str

_INTEGER = re.compile(r"[+-]?\d+")


def parse_parameters(settings: Iterable[str]) -> dict[str, Parameter]:
    """Returns the settings by name; raises ToolError for one without '=' or a name given twice.

    5 is an integer, 0.5 and 1e-3 (inf and nan, too) are doubles, true and false are booleans,
    anything else is a string; "..." is a string in any case.
    """
    parameters: dict[str, Parameter] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise ToolError(f"parameter {setting!r}: expected name=value")
        if name in parameters:
            raise ToolError(f"parameter {name}: given twice")
        parameters[name] = _typed(name, value)
    return parameters


def _typed(name: str, text: str) -> Parameter:
    if text in ("true", "false"):
        return text == "true"
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1]
    if _INTEGER.fullmatch(text):
        value = int(text)
        if not -(2**63) <= value < 2**63:
            raise ToolError(f"parameter {name}: {text} does not fit into 64 bits")
        return value
    try:
        return float(text)
    except ValueError:
        return text


def parse_ids(text: str) -> list[int]:
    """Token ids from a comma-separated list."""
    try:
        ids = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ToolError(f"token ids {text!r}: expected integers separated by commas") from error
    for token in ids:
        if not -(2**31) <= token < 2**31:
            raise ToolError(f"token ids {text!r}: {token} does not fit into 32 bits")
    return ids
