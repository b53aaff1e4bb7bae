import json
import pathlib
import sys

import pytest

from benchmarks.engine import report
from benchmarks.engine.comparison import Job, Row
from tools.lib import results
from tools.lib.model_shapes import T5_1_5B

JOB = Job(T5_1_5B, batches=(1, 256), source_tokens=512, new_tokens=128)
OURS = "seq2seq bfloat16"
PEER = "CTranslate2 float16"
ROWS = [
    Row(1, OURS, 1282.2, 8.435, 4.27, 0.7525, 0.5045, 1.0, 1.0, (1270.0, 1290.0), 5),
    Row(1, PEER, 152.0, 1.0, 12.3, 6.53, 0.0598, 1.0, 0.412, (150.0, 155.0), 5),
    Row(256, OURS, 20061.0, None, 460.6, 9.27, 0.5738, 1.0, 1.0, (20000.0, 20100.0), 5),
    Row(256, PEER, error="out of memory"),
]
RESULT = report.CaseResult("T5, 1.5e9 parameters", JOB, ROWS, note="seq2seq float16: not yet")

TEXT = """\
T5, 1.5e9 parameters:

| batch | engine              | tokens/s | ratio | first token ms | step ms | of the floor | first equal | all equal |
|   --: | :--                 |      --: |   --: |            --: |     --: |          --: |         --: |       --: |
|     1 | floor               |     2542 |       |           0.94 |   0.386 |              |             |           |
|     1 | seq2seq bfloat16    |     1282 |  8.44 |           4.27 |   0.752 |       50.4 % |       100 % |     100 % |
|     1 | CTranslate2 float16 |      152 |  1.00 |             12 |   6.530 |        6.0 % |       100 % |      41 % |
|   256 | floor               |    34957 |       |            241 |   5.439 |              |             |           |
|   256 | seq2seq bfloat16    |    20061 |     - |            461 |   9.270 |       57.4 % |       100 % |     100 % |
|   256 | CTranslate2 float16 |        - |     - |              - |       - |            - |           - |         - |

seq2seq float16: not yet

CTranslate2 float16 at batch 256: out of memory
"""  # noqa: E501


def test_text() -> None:
    assert report.text(RESULT) == TEXT


def test_json_and_plot(tmp_path: pathlib.Path) -> None:
    arguments = {"rounds": 5}
    path = tmp_path / "results" / "engine.json"
    results.write_json(path, report.facts([RESULT], {"torch": "2"}, arguments))
    values = json.loads(path.read_text())
    assert values["arguments"] == arguments
    assert values["versions"] == {"torch": "2"}
    assert values["machine"]["cpu"]
    assert values["commit"]
    (model,) = values["models"]
    assert (model["title"], model["note"]) == (RESULT.title, RESULT.note)
    assert (model["source_tokens"], model["shape"]["d_model"]) == (512, 1536)
    assert [least["batch"] for least in model["floors"]] == [1, 256]
    assert model["rows"][1]["tokens_per_second"] == 152.0
    assert model["rows"][3]["error"] == "out of memory"
    plot = tmp_path / "engine.png"
    report.plot(plot, values)
    assert plot.read_bytes().startswith(b"\x89PNG")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
