"""The text of a model's config.pbtxt."""

import dataclasses
import json
import re
from collections.abc import Mapping

from tools.lib.errors import ToolError

INSTANCE_KINDS = ("KIND_CPU", "KIND_GPU", "KIND_AUTO")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

# name, data type, dims
_INPUTS = (("input_ids", "TYPE_INT32", "-1"), ("decoder_input_ids", "TYPE_INT32", "-1"))
_OUTPUTS = (("output_ids", "TYPE_INT32", "-1"), ("logprobs", "TYPE_FP32", "-1"))


@dataclasses.dataclass(frozen=True)
class ModelConfigText:
    """What a config.pbtxt says beyond what is the same for every model of this backend.

    `options` are the backend's parameters, as tools.lib.options returns them.
    """

    name: str
    instance_kind: str = "KIND_AUTO"
    instance_count: int = 1
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)


def check_model_name(name: str) -> None:
    """Refuses a name that cannot be a folder of a repository and a part of a URL."""
    if not _NAME.fullmatch(name):
        raise ToolError(
            f"model name {name!r}: expected letters, digits, '_', '-' and '.', "
            "starting with none of the last two"
        )


def write_config(config: ModelConfigText) -> str:
    """Returns config.pbtxt; raises ToolError for a name, kind or count that Triton refuses."""
    check_model_name(config.name)
    if config.instance_kind not in INSTANCE_KINDS:
        raise ToolError(
            f"instance kind {config.instance_kind!r}: expected one of {', '.join(INSTANCE_KINDS)}"
        )
    if config.instance_count < 1:
        raise ToolError(f"instance count {config.instance_count}: expected 1 or more")
    sections = [
        f'name: "{config.name}"',
        'backend: "seq2seq"',
        "max_batch_size: 0",
        "model_transaction_policy {\n  decoupled: true\n}",
        *(_tensor("input", *tensor, optional=True) for tensor in _INPUTS),
        *(_tensor("output", *tensor, optional=False) for tensor in _OUTPUTS),
        f"instance_group {{\n  count: {config.instance_count}\n  kind: {config.instance_kind}\n}}",
        *(_parameter(key, value) for key, value in config.options.items()),
    ]
    return "\n".join(sections) + "\n"


def _tensor(field: str, name: str, data_type: str, dims: str, *, optional: bool) -> str:
    lines = [f'  name: "{name}"', f"  data_type: {data_type}", f"  dims: {dims}"]
    if optional:
        lines.append("  optional: true")
    return "\n".join([f"{field} {{", *lines, "}"])


def _parameter(key: str, value: str) -> str:
    # A JSON string is a protobuf text string, too.
    return (
        f"parameters {{\n  key: {json.dumps(key)}\n"
        f"  value {{\n    string_value: {json.dumps(value)}\n  }}\n}}"
    )
