"""generation_config.json: which of its keys the backend honours, and which must not be there."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.lib.errors import ToolError
from tools.lib.json_file import is_integer, is_number, read_object
from tools.lib.model_config import ModelConfig

# Keys that decide nothing about the tokens of a request without beams and helper models.
_INERT = frozenset(
    {
        "_commit_hash",
        "_from_model_config",
        "_name_or_path",
        "assistant_confidence_threshold",
        "assistant_ensemble_weight",
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
        "max_cache_len",
        "max_matching_ngram_size",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "output_attentions",
        "output_hidden_states",
        "output_logits",
        "output_scores",
        "prefill_chunk_size",
        "remove_invalid_values",
        "renormalize_logits",
        "return_dict_in_generate",
        "return_legacy_cache",
        "target_lookbehind",
        "transformers_version",
        "use_cache",
    }
)

# Keys that change tokens and that the backend does not have, with the values that change nothing.
# null changes nothing anywhere.
_EMPTY = ([], {})
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "assistant_early_exit": (),
    "bad_words_ids": _EMPTY,
    "begin_suppress_tokens": _EMPTY,
    "constraints": _EMPTY,
    "diversity_penalty": (0,),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": _EMPTY,
    "forced_bos_token_id": (),
    "forced_decoder_ids": _EMPTY,
    "forced_eos_token_id": (),
    "guidance_scale": (1,),
    "max_time": (),
    "no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "num_beams": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0,),
    "prompt_lookup_num_tokens": (),
    "repetition_penalty": (1,),
    "sequence_bias": _EMPTY,
    "speculation_type": (),
    "stop_strings": _EMPTY,
    "suppress_tokens": _EMPTY,
    "token_healing": (False,),
    "top_h": (),
    "use_mtp": (False,),
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

# A sequence may end with any of so many ids.
_MAX_EOS = 64

_TOKEN_KEYS = ("decoder_start_token_id", "pad_token_id", "eos_token_id")


def check_generation_config(directory: Path, config: ModelConfig) -> None:
    """Checks <directory>/generation_config.json, if there is one, and config.json's token ids.

    The latter stand in for the former. Raises ToolError naming file, key and value.
    """
    config_path = directory / "config.json"
    _check_tokens(config_path, read_object(config_path), config.vocab_size)
    path = directory / "generation_config.json"
    if not os.path.lexists(path):
        return
    values = read_object(path)
    _check_tokens(path, values, config.vocab_size)
    for key, value in values.items():
        if key not in _TOKEN_KEYS:
            _check_key(path, key, value)


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


def _check_tokens(path: Path, values: dict[str, Any], vocab_size: int) -> None:
    for key in _TOKEN_KEYS:
        value = values.get(key)
        # Ids that are not given have defaults in this family: pad 0, which starts, and end 1.
        if value is None:
            continue
        several = key == "eos_token_id" and isinstance(value, list) and 1 <= len(value) <= _MAX_EOS
        for token in value if several else [value]:
            if not is_integer(token) or not 0 <= token < vocab_size:
                raise ToolError(
                    f"{path}: {key} is {value!r}; a token id from 0 to {vocab_size - 1} is expected"
                )
