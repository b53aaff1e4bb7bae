"""config.pbtxt: golden text, and that the server's own schema reads it as meant."""

import sys

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tools.lib.config_writer import ModelConfigText, write_config
from tools.lib.errors import ToolError

GOLDEN = """\
name: "summarizer-v1.1"
backend: "seq2seq"
max_batch_size: 0
model_transaction_policy {
  decoupled: true
}
input {
  name: "input_ids"
  data_type: TYPE_INT32
  dims: -1
  optional: true
}
input {
  name: "decoder_input_ids"
  data_type: TYPE_INT32
  dims: -1
  optional: true
}
output {
  name: "output_ids"
  data_type: TYPE_INT32
  dims: -1
}
output {
  name: "logprobs"
  data_type: TYPE_FP32
  dims: -1
}
instance_group {
  count: 2
  kind: KIND_AUTO
}
parameters {
  key: "engine"
  value {
    string_value: "cpu"
  }
}
parameters {
  key: "max_active_sequences"
  value {
    string_value: "32"
  }
}
"""

CONFIG = ModelConfigText(
    name="summarizer-v1.1",
    instance_kind="KIND_AUTO",
    instance_count=2,
    options={"engine": "cpu", "max_active_sequences": "32"},
)


def test_writes_the_golden_text() -> None:
    assert write_config(CONFIG) == GOLDEN


def test_triton_reads_it_as_meant() -> None:
    parsed = text_format.Parse(write_config(CONFIG), model_config_pb2.ModelConfig())
    assert (parsed.name, parsed.backend, parsed.max_batch_size) == (CONFIG.name, "seq2seq", 0)
    assert parsed.model_transaction_policy.decoupled
    assert [(one.name, one.optional, list(one.dims)) for one in parsed.input] == [
        ("input_ids", True, [-1]),
        ("decoder_input_ids", True, [-1]),
    ]
    assert [one.name for one in parsed.output] == ["output_ids", "logprobs"]
    assert [(one.kind, one.count) for one in parsed.instance_group] == [
        (model_config_pb2.ModelInstanceGroup.KIND_AUTO, 2)
    ]
    assert {key: value.string_value for key, value in parsed.parameters.items()} == CONFIG.options


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", 'a"b', "a b", "-x", "a" * 129])
def test_refuses_names_that_are_no_folder(name: str) -> None:
    with pytest.raises(ToolError, match="model name"):
        write_config(ModelConfigText(name))


def test_refuses_other_kinds_and_counts() -> None:
    with pytest.raises(ToolError, match="KIND_TPU"):
        write_config(ModelConfigText("m", instance_kind="KIND_TPU"))
    with pytest.raises(ToolError, match="instance count 0"):
        write_config(ModelConfigText("m", instance_count=0))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
