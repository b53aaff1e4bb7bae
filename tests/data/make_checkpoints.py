"""Makes the tiny checkpoints under tests/data/checkpoints and their goldens.

Run it from the repository's root, in an environment of its own:

    python3.11 -m venv /tmp/checkpoints
    /tmp/checkpoints/bin/pip install -r tests/data/requirements.txt
    /tmp/checkpoints/bin/python -m tests.data.make_checkpoints [--only=t5_v1_0,umt5]
"""

import json
import pathlib
import zlib
from typing import Any

import torch
import transformers
from absl import app, flags
from safetensors import torch as safetensors_torch

from tests.data import families, goldens, toy_task

_OUT = flags.DEFINE_string("out", "tests/data/checkpoints", "Folder that receives the checkpoints.")
_ONLY = flags.DEFINE_list("only", [], "Folders to make; all when empty.")
_STEPS = flags.DEFINE_integer("steps", 1000, "Training steps a model.", lower_bound=1)

# Half precision keeps every scaled weight below its largest number, 65,504.
_OVERFLOW_WEIGHT_LIMIT = 60_000.0
_HALF_LIMIT = 65_504.0


def _seed(name: str) -> int:
    return zlib.crc32(name.encode())


def _new_model(family: families.Family, seed: int) -> Any:
    """A model with nothing trivial in it: norms off 1, relative biases of size, an own head."""
    torch.manual_seed(seed)
    # The library writes pad_token_id and eos_token_id for T5 only by default; the folders state
    # them.
    config_class = getattr(transformers, f"{family.library_class}Config")
    config = config_class(
        **family.config, tie_word_embeddings=family.tied, pad_token_id=0, eos_token_id=1
    )
    model = getattr(transformers, f"{family.library_class}ForConditionalGeneration")(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.15)
            elif "relative_attention_bias" in name:
                parameter.normal_(0, 0.5)
    if not family.tied:  # the library ties every T5; published v1.1 files carry a head of their own
        head = torch.randn(config.vocab_size, config.d_model) * 0.1
        model.lm_head.weight = torch.nn.Parameter(head)
    return model


def _weights(model: Any, family: families.Family) -> dict[str, torch.Tensor]:
    """The tensors as published files have them: shared once, the head only where it is its own."""
    aliases = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    if family.tied:
        aliases.add("lm_head.weight")
    dtype = getattr(torch, family.dtype)
    state = {k: v for k, v in model.state_dict().items() if k not in aliases}
    return {k: v.to(dtype).contiguous() for k, v in state.items()}


def _scale_residual(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Multiplies the residual stream by a power of two.

    RMSNorm divides it out again, so the answers stay, while activations leave half precision's
    range.
    """
    writers = ("shared.weight", ".o.weight", ".wo.weight")
    largest = max(v.abs().max().item() for k, v in weights.items() if k.endswith(writers))
    factor = 1.0
    while largest * factor * 2 < _OVERFLOW_WEIGHT_LIMIT:
        factor *= 2
    return {k: v * factor if k.endswith(writers) else v for k, v in weights.items()}


def _save(
    folder: pathlib.Path, model: Any, family: families.Family, weights: dict[str, torch.Tensor]
) -> None:
    """Writes config.json, generation_config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config.to_diff_dict() | {
        "architectures": [type(model).__name__],
        "dtype": family.dtype,
        "tie_word_embeddings": family.tied,
    }
    config.pop("scale_decoder_outputs", None)  # published files leave it to tie_word_embeddings
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    generation = {
        "decoder_start_token_id": model.config.decoder_start_token_id,
        "eos_token_id": model.config.eos_token_id,
        "max_length": goldens.MAX_LENGTH,
        "pad_token_id": model.config.pad_token_id,
        "transformers_version": transformers.__version__,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    safetensors_torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _load(folder: pathlib.Path, family: families.Family) -> Any:
    """Loads the folder as a user would, into float32 arithmetic."""
    model_class = getattr(transformers, f"{family.library_class}ForConditionalGeneration")
    return model_class.from_pretrained(folder, dtype=torch.float32).eval()


def _largest_ffn_output(model: Any, source: list[int]) -> float:
    """The largest magnitude that leaves a feed-forward block for `source`."""
    found = [0.0]
    hooks = [
        module.register_forward_hook(lambda _m, _i, out: found.append(out.abs().max().item()))
        for name, module in model.named_modules()
        if name.endswith(".wo")
    ]
    model.generate(input_ids=torch.tensor([source]), max_length=goldens.MAX_LENGTH)
    for hook in hooks:
        hook.remove()
    return max(found)


def _make(name: str, out: pathlib.Path, steps: int) -> None:
    family = families.FAMILIES[name]
    trained_as = family.overflow_of or name
    model = _new_model(families.FAMILIES[trained_as], _seed(trained_as))
    task = toy_task.ToyTask(_seed(trained_as), model.config.pad_token_id, model.config.eos_token_id)
    loss = toy_task.fit(model, task, steps)
    weights = _weights(model, family)
    if family.overflow_of:
        weights = _scale_residual(weights)
    _save(out / name, model, family, weights)
    model = _load(out / name, family)
    if family.overflow_of:
        largest = _largest_ffn_output(model, task.source(toy_task.MAX_SYMBOLS))
        if largest <= _HALF_LIMIT:
            raise ValueError(f"{name}: the feed-forward output stays at {largest}")
    margin = goldens.write(out / name / "expected.json", model, task, family)
    print(f"{name}: loss {loss:.3f}, smallest margin {margin:.4f}", flush=True)


def main(_: list[str]) -> None:
    """Makes the folders that the flags name."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in _ONLY.value or families.FAMILIES:
        _make(name, pathlib.Path(_OUT.value), _STEPS.value)


if __name__ == "__main__":
    app.run(main)
