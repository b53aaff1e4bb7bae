"""Loading, failing to load, unloading: other models keep serving, and memory comes back."""

import json
import pathlib
from collections.abc import Callable, Iterator

import pytest

from tests.harness import golden, safetensors_file
from tests.harness.cuda_device import has_gpu
from tests.harness.fixtures import Boot, boot
from tests.harness.model_repository import GPU, instance_kind, write_model
from tests.harness.server import ServerError

_SERVING = "serving"
_GAUGES = (
    "seq2seq_active_sequences",
    "seq2seq_waiting_sequences",
    "seq2seq_kv_blocks_used",
    "seq2seq_kv_blocks_total",
)
_COUNTERS = ("seq2seq_generated_tokens_total", "seq2seq_source_tokens_total")
_OUTCOMES = {"ok", "timeout", "invalid", "refused", "cancelled", "failed"}


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server with one model; tests write others beside it."""

    def write(repository: pathlib.Path) -> None:
        write_model(repository, _SERVING, "t5_v1_1")

    # With more than one arena, what loading threads have freed stays in each that one of them
    # happened to use: nothing is lost, but resident memory levels off after a hundred rounds only.
    one_arena = {"MALLOC_ARENA_MAX": "1"}
    with boot(module_folder, write=write, load=[_SERVING], environment=one_arena) as b:
        yield b


def _check_serving(booted: Boot, model: str = _SERVING, checkpoint: str = "t5_v1_1") -> None:
    case = golden.load(checkpoint).rows[0]
    booted.client.generate(model, case.source).check_answer(case.answer)


def _edit_json(path: pathlib.Path, **changes: object) -> None:
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps(content))


def _drop_json(path: pathlib.Path, key: str) -> None:
    content = json.loads(path.read_text())
    del content[key]
    path.write_text(json.dumps(content))


def _truncate(path: pathlib.Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


_WEIGHTS = "model.safetensors"
_TENSOR = "decoder.block.1.layer.1.EncDecAttention.k.weight"

# What is done to a good version folder -> what the load's error must name.
_DAMAGE: dict[str, tuple[Callable[[pathlib.Path], object], list[str]]] = {
    "missing tensor": (
        lambda v: safetensors_file.edit(v / _WEIGHTS, drop=_TENSOR),
        [_WEIGHTS, _TENSOR],
    ),
    "surplus tensor": (
        lambda v: safetensors_file.edit(
            v / _WEIGHTS, copy=("shared.weight", "encoder.extra.weight")
        ),
        [_WEIGHTS, "encoder.extra.weight"],
    ),
    "wrong shape": (
        lambda v: safetensors_file.edit(v / _WEIGHTS, copy=("shared.weight", _TENSOR)),
        [_TENSOR],
    ),
    "wrong dtype": (
        lambda v: safetensors_file.edit(v / _WEIGHTS, dtype=(_TENSOR, "I16")),
        [_TENSOR, "I16"],
    ),
    "tied copy that differs": (
        lambda v: safetensors_file.edit(
            v / _WEIGHTS, copy=("lm_head.weight", "encoder.embed_tokens.weight")
        ),
        ["encoder.embed_tokens.weight"],
    ),
    "half of the weights": (lambda v: _truncate(v / _WEIGHTS, 40_000), [_WEIGHTS]),
    "half of the header": (lambda v: _truncate(v / _WEIGHTS, 100), [_WEIGHTS]),
    "no bytes of weights": (lambda v: _truncate(v / _WEIGHTS, 0), [_WEIGHTS]),
    "header length past the end": (
        lambda v: (v / _WEIGHTS).write_bytes(b"\xff" * 8 + b"{}"),
        [_WEIGHTS],
    ),
    "no weights": (lambda v: (v / _WEIGHTS).unlink(), [_WEIGHTS]),
    "no config.json": (lambda v: (v / "config.json").unlink(), ["config.json"]),
    "broken config.json": (lambda v: _truncate(v / "config.json", 50), ["config.json"]),
    "another model_type": (
        lambda v: _edit_json(v / "config.json", model_type="llama"),
        ["config.json", "model_type", "llama"],
    ),
    "no d_model": (lambda v: _drop_json(v / "config.json", "d_model"), ["config.json", "d_model"]),
    "d_model of the wrong type": (
        lambda v: _edit_json(v / "config.json", d_model="32"),
        ["config.json", "d_model"],
    ),
    "negative layers": (
        lambda v: _edit_json(v / "config.json", num_layers=-1),
        ["config.json", "num_layers"],
    ),
    "unknown activation": (
        lambda v: _edit_json(v / "config.json", feed_forward_proj="gated-swoosh"),
        ["config.json", "swoosh"],
    ),
    "unsupported generation key": (
        lambda v: _edit_json(v / "generation_config.json", repetition_penalty=1.3),
        ["generation_config.json", "repetition_penalty"],
    ),
    "beams by default": (
        lambda v: _edit_json(v / "generation_config.json", num_beams=4),
        ["generation_config.json", "num_beams"],
    ),
}


@pytest.mark.parametrize("damage", _DAMAGE)
def test_damaged_checkpoint(booted: Boot, damage: str) -> None:
    """The load fails, naming file and tensor or key; the other model keeps serving."""
    apply, named = _DAMAGE[damage]
    name = "damaged_" + damage.replace(" ", "_").replace(".", "_")
    apply(write_model(booted.repository, name, "t5_v1_1"))
    with pytest.raises(ServerError) as failure:
        booted.server.load(name)
    for fragment in named:
        assert fragment in str(failure.value), failure.value
    _check_serving(booted)


_BAD_PARAMETERS: list[tuple[str, str]] = [
    ("no_such_option", "1"),
    ("engine", "tpu"),
    ("max_active_sequences", "0"),
    ("max_active_sequences", "-1"),
    ("max_active_sequences", "many"),
    ("max_active_sequences", "4 "),
    ("max_queue_size", "99999999999999999999"),
    ("max_source_tokens", "0"),
    ("max_new_tokens", "1.5"),
    ("default_max_new_tokens", "-3"),
    ("kv_cache_bytes", "lots"),
    ("weights_dtype", "int8"),
    ("cpu_threads", "0"),
]


@pytest.mark.parametrize(("key", "value"), _BAD_PARAMETERS)
def test_bad_parameter(booted: Boot, key: str, value: str) -> None:
    """A parameter of config.pbtxt that is unknown or out of range fails the load by name."""
    name = f"bad_{key}_{_BAD_PARAMETERS.index((key, value))}"
    write_model(booted.repository, name, "t5_v1_1", options={key: value})
    with pytest.raises(ServerError) as failure:
        booted.server.load(name)
    assert key in str(failure.value)
    assert value in str(failure.value)
    _check_serving(booted)


def test_batching_config_is_refused(booted: Boot) -> None:
    """max_batch_size is 0: the backend batches by itself."""
    write_model(booted.repository, "batched", "t5_v1_1")
    config = booted.repository / "batched" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 0", "max_batch_size: 8"))
    with pytest.raises(ServerError, match="max_batch_size"):
        booted.server.load("batched")
    _check_serving(booted)


def test_cpu_engine_on_a_gpu_instance(booted: Boot) -> None:
    """The option decides; where there is no GPU, such an instance fails the load all the same."""
    write_model(booted.repository, "cpu_on_gpu", "t5_v1_1", kind=GPU, options={"engine": "cpu"})
    if has_gpu():
        booted.server.load("cpu_on_gpu")
        _check_serving(booted, "cpu_on_gpu")
    else:
        with pytest.raises(ServerError, match=r"(?i)gpu"):
            booted.server.load("cpu_on_gpu")
    _check_serving(booted)


def test_kind_auto(booted: Boot) -> None:
    """KIND_AUTO takes an engine that is there."""
    # On a machine with a GPU that is its engine, whose half types want wider heads.
    options = {"weights_dtype": "float32"}
    write_model(booted.repository, "kind_auto", "t5_v1_1", kind="KIND_AUTO", options=options)
    booted.server.load("kind_auto")
    _check_serving(booted, "kind_auto")
    booted.server.unload("kind_auto")
    booted.server.wait_unloaded("kind_auto", 5.0)


@pytest.mark.parametrize("checkpoint", ["t5_v1_1", "flan_silu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_dtype(booted: Boot, checkpoint: str, dtype: str) -> None:
    """A cast at load; to float32 it is exact, to a half type the decided toy answers stay."""
    name = f"{checkpoint}_{dtype}"
    write_model(booted.repository, name, checkpoint, options={"weights_dtype": dtype})
    if instance_kind() == GPU and dtype != "float32":
        # The CUDA engine's half types want heads of a multiple of 8; the toys' have 12.
        with pytest.raises(ServerError, match="d_kv"):
            booted.server.load(name)
        return
    booted.server.load(name)
    for case in golden.load(checkpoint).rows:
        booted.client.generate(name, case.source).check_answer(case.answer)
    booted.server.unload(name)
    booted.server.wait_unloaded(name, 5.0)


def test_tensors_that_transformers_ignores(booted: Boot) -> None:
    """Old published files carry an unused table and copies of tied weights."""
    version = write_model(booted.repository, "old_file", "t5_v1_0")
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    table = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    safetensors_file.edit(version / _WEIGHTS, copy=(table, unused))
    for copy in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
        safetensors_file.edit(version / _WEIGHTS, copy=("shared.weight", copy))
    booted.server.load("old_file")
    _check_serving(booted, "old_file", "t5_v1_0")


def test_no_generation_config(booted: Boot) -> None:
    """Without the file config.json's ids are used, and the option's default is the limit."""
    version = write_model(
        booted.repository, "no_defaults", "t5_v1_0", options={"default_max_new_tokens": "40"}
    )
    (version / "generation_config.json").unlink()
    booted.server.load("no_defaults")
    _check_serving(booted, "no_defaults", "t5_v1_0")
    case, _ = golden.load("t5_v1_0").long
    generation = booted.client.generate("no_defaults", case.source, min_new_tokens=40)
    generation.check_answer(case.answer[:40])


def test_default_limit_over_the_model_is_clamped(booted: Boot) -> None:
    """generation_config's max_length 32 with max_new_tokens 10: ten, not an error."""
    write_model(booted.repository, "clamped", "t5_v1_0", options={"max_new_tokens": "10"})
    booted.server.load("clamped")
    case = golden.load("t5_v1_0").rows[2]
    generation = booted.client.generate("clamped", case.source)
    generation.check_answer(case.answer[:10])
    assert generation.parameters["finish_reason"] == "length"


def test_too_long_for_the_cache(booted: Boot) -> None:
    """What can never fit is refused when it comes, not when it runs out; what fits is served."""
    options = {"kv_cache_bytes": str(256 * 1024)}
    write_model(booted.repository, "small_cache", "t5_v1_0", options=options)
    booted.server.load("small_cache")
    case, _ = golden.load("t5_v1_0").long
    refused = booted.client.generate("small_cache", case.source, max_new_tokens=4000)
    assert refused.error.startswith("INVALID_ARG: ")
    assert "kv_cache_bytes" in refused.error
    cases = golden.load("t5_v1_0").many
    generations = [booted.client.start("small_cache", c.source) for c in cases]
    for c, generation in zip(cases, generations, strict=True):
        generation.wait().check_answer(c.answer)


def test_metrics(booted: Boot) -> None:
    """Every promised name stands in /metrics with labels model, version and instance."""
    before = booted.metrics()
    case = golden.load("t5_v1_1").rows[0]
    booted.client.generate(_SERVING, case.source).check_answer(case.answer)
    booted.wait_idle()
    after = booted.metrics()
    for name in (*_GAUGES, *_COUNTERS):
        samples = after.matching(name, model=_SERVING, version="1")
        assert samples, name
        assert all("instance" in s.labels for s in samples), samples
    outcomes = after.matching("seq2seq_requests_total", model=_SERVING, version="1")
    assert {s.labels["outcome"] for s in outcomes} == _OUTCOMES

    def grown(name: str, **labels: str) -> float:
        labels["model"] = _SERVING
        return after.total(name, **labels) - before.total(name, **labels)

    assert grown("seq2seq_generated_tokens_total") == len(case.answer)
    assert grown("seq2seq_source_tokens_total") == len(case.source)
    assert grown("seq2seq_requests_total", outcome="ok") == 1
    assert after.total("seq2seq_kv_blocks_total", model=_SERVING) > 0


def test_metrics_leave_with_the_model(booted: Boot) -> None:
    """An unloaded model has no series left; a loaded one's counters start at 0."""
    write_model(booted.repository, "measured", "t5_v1_1")
    for _ in range(2):
        booted.server.load("measured")
        assert booted.metrics().total("seq2seq_generated_tokens_total", model="measured") == 0
        _check_serving(booted, "measured")
        booted.server.unload("measured")
        booted.server.wait_unloaded("measured", 5.0)
        assert booted.metrics().matching("seq2seq_generated_tokens_total", model="measured") == []


def test_load_and_unload_50_times(booted: Boot) -> None:
    """Memory returns to what it was after the first rounds."""
    options = {"kv_cache_bytes": str(16 << 20)}
    write_model(booted.repository, "again", "t5_v1_1", options=options, instances=2)

    def rounds(count: int) -> None:
        for _ in range(count):
            booted.server.load("again")
            _check_serving(booted, "again")
            booted.server.unload("again")
            booted.server.wait_unloaded("again", 5.0)

    rounds(10)
    first = booted.server.rss_bytes()
    rounds(40)
    # A round holds 2 x 16 MiB of cache and the weights: losing any of it would show 40-fold.
    assert booted.server.rss_bytes() - first < 8 << 20
