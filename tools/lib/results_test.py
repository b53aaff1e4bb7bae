import datetime
import json
import pathlib
import sys

import pytest

from tools.lib import results
from tools.lib.errors import ToolError

TABLE = """\
| engine | tokens/s |
| :--    |      --: |
| a      |        7 |
| longer |    12345 |"""


def test_table() -> None:
    rows = [("a", "7"), ("longer", "12345")]
    assert results.markdown_table(("engine", "tokens/s"), rows, texts={"engine"}) == TABLE


def test_a_row_of_another_length_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="zip"):
        results.markdown_table(("a", "b"), [("1",)], texts=())


def test_json(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQ2SEQ_COMMIT", "abc")
    path = tmp_path / "new" / "result.json"
    results.write_json(path, results.provenance() | {"more": 1})
    values = json.loads(path.read_text())
    assert list(values) == ["date", "commit", "machine", "more"]
    assert values["commit"] == "abc"
    assert datetime.datetime.fromisoformat(values["date"]).tzinfo is datetime.UTC
    assert results.device(values)


def test_folder_is_named_after_the_day_and_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for gpus, name in ((["NVIDIA H200, 580.1"], "h200"), ([], "cpu")):
        monkeypatch.setattr(results.machine, "machine", lambda gpus=gpus: {"gpus": gpus})
        assert results.default_folder() == f"benchmarks/results/{today}-{name}"


def test_what_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ToolError, match="file"):
        results.write_json(file / "result.json", {})


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
