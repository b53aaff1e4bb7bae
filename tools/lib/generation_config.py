"""generation_config.json: which of its keys the backend honours, and which must not be there."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.lib.errors import ToolError
from tools.lib.json_file import is_integer, is_number, read_object
from tools.lib.model_config import ModelConfig

# Keys that decide nothing about the tokens of a request without beams and helper models.
_INERT = frozenset(
    {
        "_from_model_config",
        "assistant_confidence_threshold",
        "assistant_early_exit",
        "assistant_lookbehind",
        "bos_token_id",
        "cache_config",
        "cache_implementation",
        "compile_config",
        "continuous_batching_config",
        "disable_compile",
        "early_stopping",
        "is_assistant",
        "length_penalty",
        "low_memory",
        "max_matching_ngram_size",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "output_attentions",
        "output_hidden_states",
        "output_logits",
        "output_scores",
        "prefill_chunk_size",
        "renormalize_logits",
        "return_dict_in_generate",
        "target_lookbehind",
        "transformers_version",
        "use_cache",
    }
)

# Keys that change tokens and that the backend does not have, with the values that change nothing.
# null changes nothing anywhere.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "bad_words_ids": ([],),
    "begin_suppress_tokens": ([],),
    "constraints": ([],),
    "diversity_penalty": (0,),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": ([],),
    "forced_bos_token_id": (),
    "forced_decoder_ids": ([],),
    "forced_eos_token_id": (),
    "guidance_scale": (1,),
    "max_time": (),
    "no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0,),
    "prompt_lookup_num_tokens": (),
    "remove_invalid_values": (False,),
    "repetition_penalty": (1,),
    "sequence_bias": ([], {}),
    "stop_strings": ([],),
    "suppress_tokens": ([],),
    "token_healing": (False,),
    "top_h": (),
    "watermarking_config": (),
}


def _integer(low: int) -> tuple[Callable[[Any], bool], str]:
    return lambda value: is_integer(value) and low <= value < 2**31, f"an integer of {low} or more"


def _number(allowed: Callable[[float], bool], words: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: is_number(value) and math.isfinite(value) and allowed(value), words


# Keys that the backend takes as the model's defaults: what is allowed, and the same in words.
_SUPPORTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_new_tokens": _integer(1),
    "max_length": _integer(1),
    "min_new_tokens": _integer(0),
    "min_length": _integer(0),
    "do_sample": (lambda value: isinstance(value, bool), "true or false"),
    "temperature": _number(lambda value: value >= 0, "a number of 0 or more"),
    "top_k": _integer(0),
    "top_p": _number(lambda value: 0 < value <= 1, "a number in (0, 1]"),
    "min_p": _number(lambda value: 0 <= value <= 1, "a number in [0, 1]"),
    "typical_p": _number(lambda value: 0 < value <= 1, "a number in (0, 1]"),
}

_TOKEN_KEYS = ("decoder_start_token_id", "pad_token_id", "eos_token_id")


def check_generation_config(directory: Path, config: ModelConfig) -> None:
    """Checks <directory>/generation_config.json, if there is one, and that the checkpoint says how
    a sequence starts and ends (there, or else in config.json). Raises ToolError naming file, key,
    value.
    """
    path = directory / "generation_config.json"
    config_path = directory / "config.json"
    values = read_object(path) if path.exists() else {}
    for key, value in values.items():
        if key not in _TOKEN_KEYS:
            _check_key(path, key, value)
    model_values = read_object(config_path)
    for key in _TOKEN_KEYS:
        source = path if values.get(key) is not None else config_path
        value = values.get(key) if source is path else model_values.get(key)
        _check_tokens(source, key, value, config.vocab_size)


def _check_key(path: Path, key: str, value: object) -> None:
    if value is None or key in _INERT:
        return
    if key in _SUPPORTED:
        allowed, words = _SUPPORTED[key]
        if not allowed(value):
            raise ToolError(f"{path}: {key} is {value!r}; {words} is expected")
        return
    if key not in _NEUTRAL:
        raise ToolError(f"{path}: {key} is not a key that this backend knows")
    neutral = _NEUTRAL[key]
    if not any(
        value == same and isinstance(value, bool) == isinstance(same, bool) for same in neutral
    ):
        spelled = " or ".join([repr(same) for same in neutral] + ["null"])
        raise ToolError(f"{path}: {key} is {value!r}, which is not supported; only {spelled} is")


def _check_tokens(path: Path, key: str, value: object, vocab_size: int) -> None:
    # Everything but the end of a sequence has a default in this family: pads are 0 and start it.
    if value is None and key != "eos_token_id":
        return
    several = key == "eos_token_id" and isinstance(value, list) and value
    for token in value if several else [value]:
        if not is_integer(token) or not 0 <= token < vocab_size:
            raise ToolError(
                f"{path}: {key} is {value!r}; a token id from 0 to {vocab_size - 1} is expected"
            )
