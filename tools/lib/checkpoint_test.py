"""What passes and what fails the check of a checkpoint, and which file and key the error names."""

import shutil
import sys
from pathlib import Path

import pytest

from tools.lib.checkpoint import check_checkpoint
from tools.lib.errors import ToolError
from tools.lib.paths import room_file
from tools.testing.tiny_checkpoint import (
    SHAPES,
    write_checkpoint,
    write_json,
    write_safetensors,
)

ENCODER_Q = "encoder.block.0.layer.0.SelfAttention.q.weight"


def failure(directory: Path) -> str:
    with pytest.raises(ToolError) as raised:
        check_checkpoint(directory)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_accepts_a_complete_checkpoint(tmp_path: Path) -> None:
    files = check_checkpoint(write_checkpoint(tmp_path / "c"))
    assert files.names == ("config.json", "generation_config.json", "model.safetensors")
    assert (files.config.vocab_size, files.config.inner) == (12, 8)


def test_accepts_the_trained_model() -> None:
    files = check_checkpoint(room_file("models/g2p_t5/checkpoint"))
    assert set(files.names) == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


@pytest.mark.parametrize("text", [b"{", b"\xff", b'{"vocab_size": ' + b"9" * 5000 + b"}"])
def test_names_a_file_that_is_not_readable(tmp_path: Path, text: bytes) -> None:
    directory = write_checkpoint(tmp_path / "c")
    (directory / "config.json").write_bytes(text)
    assert f"{directory / 'config.json'}: not readable as JSON" in failure(directory)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_names_a_missing_weight(tmp_path: Path, name: str) -> None:
    shapes = {key: shape for key, shape in SHAPES.items() if key != name}
    message = failure(write_checkpoint(tmp_path / "c", shapes=shapes))
    assert str(tmp_path / "c" / "model.safetensors") in message
    assert f"tensor {name} with shape {SHAPES[name]} is missing" in message


def test_names_a_surplus_weight(tmp_path: Path) -> None:
    message = failure(write_checkpoint(tmp_path / "c", shapes=SHAPES | {"adapter.weight": [2]}))
    assert "model.safetensors" in message
    assert "adapter.weight" in message


def test_passes_over_what_transformers_ignores(tmp_path: Path) -> None:
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    check_checkpoint(write_checkpoint(tmp_path / "c", shapes=SHAPES | {name: [4, 2]}))


def test_names_a_wrong_shape(tmp_path: Path) -> None:
    message = failure(write_checkpoint(tmp_path / "c", shapes=SHAPES | {ENCODER_Q: [8, 4]}))
    assert ENCODER_Q in message
    assert "[8, 4]" in message
    assert "[8, 8]" in message


@pytest.mark.parametrize("kept_fraction", [0.0, 0.1, 0.6, 0.999])
def test_names_a_truncated_file(tmp_path: Path, kept_fraction: float) -> None:
    path = write_checkpoint(tmp_path / "c") / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept_fraction)])
    message = failure(tmp_path / "c")
    assert str(path) in message
    assert "truncated" in message


def test_truncation_names_the_tensor_that_lost_bytes(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert list(SHAPES)[-1] in failure(tmp_path / "c")


@pytest.mark.parametrize(
    "junk", [b"\xff" * 64, b"\x02" + bytes(7) + b"[]", b"\x05" + bytes(7) + b'{"a":', b"<html>..."]
)
def test_refuses_what_is_no_safetensors_file(tmp_path: Path, junk: bytes) -> None:
    (write_checkpoint(tmp_path / "c") / "model.safetensors").write_bytes(junk)
    assert "model.safetensors" in failure(tmp_path / "c")


@pytest.mark.parametrize("model_type", ["bart", "whisper", "T5", 5, None])
def test_names_another_model_type(tmp_path: Path, model_type: object) -> None:
    message = failure(write_checkpoint(tmp_path / "c", config={"model_type": model_type}))
    assert str(tmp_path / "c" / "config.json") in message
    assert f"model_type is {model_type!r}" in message
    assert "t5, mt5, umt5" in message


@pytest.mark.parametrize("value", [0, -1, 2**31, 1.5, "8", True, [8]])
def test_names_an_impossible_size(tmp_path: Path, value: object) -> None:
    message = failure(write_checkpoint(tmp_path / "c", config={"d_ff": value}))
    assert "config.json" in message
    assert "d_ff" in message
    assert repr(value) in message


@pytest.mark.parametrize(
    "key", ["vocab_size", "d_model", "d_kv", "d_ff", "num_heads", "num_layers"]
)
def test_names_a_missing_size(tmp_path: Path, key: str) -> None:
    message = failure(write_checkpoint(tmp_path / "c", config={key: None}))
    assert "config.json" in message
    assert f"key {key} is missing" in message


@pytest.mark.parametrize("projection", ["gated-", "tanh", "gated-tanh", 3])
def test_names_an_unknown_activation(tmp_path: Path, projection: object) -> None:
    message = failure(write_checkpoint(tmp_path / "c", config={"feed_forward_proj": projection}))
    assert "feed_forward_proj" in message
    assert repr(projection) in message


def test_gated_ffn_needs_both_weights(tmp_path: Path) -> None:
    message = failure(write_checkpoint(tmp_path / "c", config={"feed_forward_proj": "gated-gelu"}))
    assert "DenseReluDense.wi_0.weight with shape [16, 8] is missing" in message


def test_umt5_needs_a_position_table_in_every_layer(tmp_path: Path) -> None:
    layer_0 = {name: shape for name, shape in SHAPES.items() if name.startswith("encoder.block.0")}
    layer_1 = {
        name.replace("block.0", "block.1"): shape
        for name, shape in layer_0.items()
        if "relative" not in name
    }
    config = {"num_layers": 2}
    check_checkpoint(write_checkpoint(tmp_path / "t5", config=config, shapes=SHAPES | layer_1))
    message = failure(
        write_checkpoint(
            tmp_path / "umt5", config=config | {"model_type": "umt5"}, shapes=SHAPES | layer_1
        )
    )
    assert "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight" in message


def test_untied_head_is_needed(tmp_path: Path) -> None:
    untied = {"tie_word_embeddings": False}
    message = failure(write_checkpoint(tmp_path / "c", config=untied))
    assert "tensor lm_head.weight with shape [12, 8] is missing" in message
    head = SHAPES | {"lm_head.weight": [12, 8]}
    fill = {"lm_head.weight": 1}
    check_checkpoint(write_checkpoint(tmp_path / "d", config=untied, shapes=head, fill=fill))


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("tied", [False, True])
def test_copies_of_the_embedding_must_be_equal(tmp_path: Path, side: str, tied: bool) -> None:
    name = f"{side}.embed_tokens.weight"
    shapes = SHAPES | {name: [12, 8], "lm_head.weight": [12, 8]}
    config = {"tie_word_embeddings": tied}
    check_checkpoint(write_checkpoint(tmp_path / "same", config=config, shapes=shapes))
    message = failure(
        write_checkpoint(tmp_path / "other", config=config, shapes=shapes, fill={name: 1})
    )
    assert name in message
    assert "shared.weight" in message


def test_a_tied_head_must_be_the_embedding(tmp_path: Path) -> None:
    name = "lm_head.weight"
    shapes = SHAPES | {name: [12, 8]}
    check_checkpoint(write_checkpoint(tmp_path / "same", shapes=shapes))
    message = failure(write_checkpoint(tmp_path / "other", shapes=shapes, fill={name: 1}))
    assert name in message
    assert "shared.weight" in message


@pytest.mark.parametrize("unscaled", [{"model_type": "mt5"}, {"scale_decoder_outputs": False}])
def test_an_unscaled_head_may_be_its_own(tmp_path: Path, unscaled: dict) -> None:
    # transformers 5 saves tie_word_embeddings: true for these, too.
    shapes = SHAPES | {"lm_head.weight": [12, 8]}
    fill = {"lm_head.weight": 1}
    check_checkpoint(write_checkpoint(tmp_path / "c", config=unscaled, shapes=shapes, fill=fill))


def test_the_embedding_may_have_any_of_its_names(tmp_path: Path) -> None:
    stacks = {name: shape for name, shape in SHAPES.items() if name != "shared.weight"}
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
        check_checkpoint(write_checkpoint(tmp_path / name, shapes=stacks | {name: [12, 8]}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("relative_attention_num_buckets", 3),
        ("relative_attention_max_distance", 2),
        ("layer_norm_epsilon", 0),
        ("layer_norm_epsilon", "small"),
        ("is_encoder_decoder", False),
        ("quantization_config", {"bits": 4}),
        ("dense_act_fn", "tanh"),
        ("is_gated_act", 1),
        ("scale_decoder_outputs", "yes"),
        ("pad_token_id", 12),
    ],
)
def test_names_other_keys_that_cannot_be(tmp_path: Path, key: str, value: object) -> None:
    message = failure(write_checkpoint(tmp_path / "c", config={key: value}))
    assert str(tmp_path / "c" / "config.json") in message
    assert key in message


def test_keys_that_transformers_derives_win(tmp_path: Path) -> None:
    message = failure(write_checkpoint(tmp_path / "c", config={"is_gated_act": True}))
    assert "tensor encoder.block.0.layer.1.DenseReluDense.wi_0.weight" in message


def test_names_surplus_bytes(tmp_path: Path) -> None:
    weights = write_checkpoint(tmp_path / "c") / "model.safetensors"
    with weights.open("ab") as file:
        file.write(b"more")
    message = failure(tmp_path / "c")
    assert str(weights) in message
    assert "4 bytes" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_beams", 4),
        ("repetition_penalty", 1.2),
        ("no_repeat_ngram_size", 3),
        ("forced_bos_token_id", 2),
        ("bad_words_ids", [[3]]),
        ("suppress_tokens", [3]),
        ("token_healing", True),
        ("a_key_of_tomorrow", 1),
        ("temperature", "hot"),
        ("temperature", -1),
        ("top_p", 0),
        ("top_p", 1.5),
        ("min_p", 2),
        ("top_k", -1),
        ("max_length", 0),
        ("do_sample", 1),
        ("eos_token_id", 12),
        ("eos_token_id", []),
        ("eos_token_id", [1, -1]),
        ("decoder_start_token_id", "0"),
    ],
)
def test_names_an_unsupported_generation_key(tmp_path: Path, key: str, value: object) -> None:
    message = failure(write_checkpoint(tmp_path / "c", generation={key: value}))
    assert str(tmp_path / "c" / "generation_config.json") in message
    assert key in message


def test_accepts_generation_keys_that_change_nothing(tmp_path: Path) -> None:
    neutral = {
        "num_beams": 1,
        "repetition_penalty": 1.0,
        "length_penalty": 2.0,
        "transformers_version": "5.24.0",
        "eos_token_id": [1, 2],
        "bad_words_ids": None,
        "suppress_tokens": [],
        "max_length": 20,
        "temperature": 0.5,
        "top_p": 1,
    }
    check_checkpoint(write_checkpoint(tmp_path / "c", generation=neutral))


def test_token_ids_may_come_from_config(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path / "c")
    (directory / "generation_config.json").unlink()
    assert "generation_config.json" not in check_checkpoint(directory).names
    message = failure(write_checkpoint(tmp_path / "d", config={"eos_token_id": 12}))
    assert str(tmp_path / "d" / "config.json") in message
    assert "eos_token_id" in message


@pytest.mark.parametrize("text", ["{", "[]", "\xff", "null"])
def test_names_a_json_file_that_does_not_parse(tmp_path: Path, text: str) -> None:
    directory = write_checkpoint(tmp_path / "c")
    (directory / "config.json").write_bytes(text.encode("latin-1"))
    assert str(directory / "config.json") in failure(directory)


def test_names_what_is_not_there(tmp_path: Path) -> None:
    assert str(tmp_path / "absent") in failure(tmp_path / "absent")
    (write_checkpoint(tmp_path / "c") / "model.safetensors").unlink()
    assert "model.safetensors" in failure(tmp_path / "c")
    shutil.rmtree(tmp_path / "c")
    (tmp_path / "c").mkdir()
    assert "config.json: no such file" in failure(tmp_path / "c")


@pytest.mark.parametrize("name", ["generation_config.json", "model.safetensors"])
def test_names_a_link_that_leads_nowhere(tmp_path: Path, name: str) -> None:
    checkpoint = write_checkpoint(tmp_path / "c")
    (checkpoint / name).unlink()
    (checkpoint / name).symlink_to(tmp_path / "gone")
    assert failure(checkpoint) == f"{checkpoint / name}: no such file"


class TestShards:
    """model.safetensors.index.json and the files that it names."""

    def write(self, tmp_path: Path) -> tuple[Path, dict[str, str]]:
        directory = write_checkpoint(tmp_path / "c")
        (directory / "model.safetensors").unlink()
        one = {name: shape for name, shape in SHAPES.items() if not name.startswith("decoder")}
        other = {name: shape for name, shape in SHAPES.items() if name.startswith("decoder")}
        write_safetensors(directory / "one.safetensors", one, {})
        write_safetensors(directory / "other.safetensors", other, {})
        weight_map = dict.fromkeys(one, "one.safetensors")
        weight_map |= dict.fromkeys(other, "other.safetensors")
        return directory, weight_map

    def index(self, directory: Path, weight_map: dict[str, str]) -> Path:
        write_json(directory / "model.safetensors.index.json", {"weight_map": weight_map})
        return directory

    def test_all_files_are_listed(self, tmp_path: Path) -> None:
        names = check_checkpoint(self.index(*self.write(tmp_path))).names
        assert {"model.safetensors.index.json", "one.safetensors", "other.safetensors"} < set(names)

    def test_names_a_missing_shard(self, tmp_path: Path) -> None:
        directory = self.index(*self.write(tmp_path))
        (directory / "other.safetensors").unlink()
        assert str(directory / "other.safetensors") in failure(directory)

    def test_names_a_tensor_that_its_shard_lacks(self, tmp_path: Path) -> None:
        directory, weight_map = self.write(tmp_path)
        message = failure(self.index(directory, weight_map | {"more.weight": "one.safetensors"}))
        assert "one.safetensors" in message
        assert "more.weight" in message

    def test_stays_inside_the_checkpoint(self, tmp_path: Path) -> None:
        directory, weight_map = self.write(tmp_path)
        message = failure(self.index(directory, weight_map | {"shared.weight": "../one"}))
        assert "index.json" in message
        assert "../one" in message


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
