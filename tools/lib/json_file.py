"""JSON files of a checkpoint, read so that every mistake in them names the file and the key."""

import json
from pathlib import Path
from typing import Any

from tools.lib.errors import ToolError


def read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in `path`; raises ToolError naming the file and what is wrong."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ToolError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ToolError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ToolError(f"{path}: holds a JSON {type(value).__name__}, expected an object")
    return value


def is_integer(value: object) -> bool:
    """True for a JSON integer (a JSON true is a Python int, but not an integer here)."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """True for a JSON number."""
    return is_integer(value) or isinstance(value, float)
