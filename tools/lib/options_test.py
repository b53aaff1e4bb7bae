"""Options of config.pbtxt: the contract's table."""

import re
import sys

import pytest

from tools.lib.errors import ToolError
from tools.lib.options import OPTIONS, parse_options
from tools.lib.paths import room_file

TABLE = [
    "engine",
    "max_active_sequences",
    "max_queue_size",
    "max_source_tokens",
    "max_new_tokens",
    "default_max_new_tokens",
    "kv_cache_bytes",
    "weights_dtype",
    "cpu_threads",
]


def test_takes_every_option_of_the_table() -> None:
    settings = [f"{name}=7" for name in TABLE if name not in ("engine", "weights_dtype")]
    settings += ["weights_dtype=bfloat16", "engine=cpu"]
    assert list(parse_options(settings)) == TABLE


def test_the_documentation_has_the_same_table() -> None:
    text = room_file("docs/config.md").read_text(encoding="utf-8")
    section = text.split("## Options of a model", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(OPTIONS)


def test_unknown_option_lists_what_is_allowed() -> None:
    with pytest.raises(ToolError, match="max_batch") as raised:
        parse_options(["max_batch=4"])
    assert all(name in str(raised.value) for name in TABLE)


@pytest.mark.parametrize(
    "setting",
    [
        "engine=gpu",
        "engine=",
        "weights_dtype=int8",
        "cpu_threads=0",
        "cpu_threads=-1",
        "cpu_threads=two",
        "cpu_threads=1.5",
        "cpu_threads=\u0663",
        "max_queue_size=2147483648",
        "kv_cache_bytes=9223372036854775808",
    ],
)
def test_names_option_and_value_out_of_range(setting: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(ToolError) as raised:
        parse_options([setting])
    assert key in str(raised.value)
    assert repr(value) in str(raised.value)


def test_large_pools_fit() -> None:
    assert parse_options(["kv_cache_bytes=60000000000"]) == {"kv_cache_bytes": "60000000000"}


@pytest.mark.parametrize("settings", [["cpu_threads"], ["cpu_threads=1", "cpu_threads=2"]])
def test_refuses_what_is_no_setting_or_comes_twice(settings: list[str]) -> None:
    with pytest.raises(ToolError, match="cpu_threads"):
        parse_options(settings)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
