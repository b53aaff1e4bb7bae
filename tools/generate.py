"""Sends one request to a running server and prints the answer as it is generated.

  generate --url=localhost:8001 --model=NAME (--text=TEXT | --input_ids=1,2,3) [--param=name=value
  ...] [--json]

Text is tokenized here, with the tokenizer.json in --tokenizer=DIR (the checkpoint's folder). For
models that are part of this repository (g2p_t5) it is found without. With --input_ids and no
tokenizer ids are printed.

--param takes any request option of docs/config.md: --param=max_new_tokens=20
--param=temperature=0.7. Integers, doubles, true and false are recognized, all else is a string;
"..." is a string in any case. Responses are not held back and merged (response_interval_ms 0)
unless --param says otherwise.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from tools.lib import command, parameters, paths
from tools.lib.client import StreamClient, StreamRequest
from tools.lib.errors import ToolError
from tools.lib.generating import print_json, print_text
from tools.lib.text import TextCodec

_URL = flags.DEFINE_string("url", "localhost:8001", "host:port of the server's gRPC endpoint.")
_MODEL = flags.DEFINE_string("model", None, "The model's name.", required=True)
_TEXT = flags.DEFINE_string("text", None, "The source text.")
_INPUT_IDS = flags.DEFINE_string("input_ids", None, "The source as token ids, EOS included: 1,2,3.")
_DECODER_INPUT_IDS = flags.DEFINE_string(
    "decoder_input_ids", None, "Ids that the answer must begin with: 1,2,3."
)
_TOKENIZER = flags.DEFINE_string("tokenizer", None, "Folder with the model's tokenizer.json.")
_PARAM = flags.DEFINE_multi_string("param", [], "name=value, a request option; repeatable.")
_JSON = flags.DEFINE_boolean(
    "json", False, "One JSON object a response: output_ids, text, parameters, final."
)


def main(arguments: Sequence[str]) -> None:
    """Sends the request, prints the responses."""
    command.refuse_arguments(arguments)
    if (_TEXT.value is None) == (_INPUT_IDS.value is None):
        raise ToolError("exactly one of --text and --input_ids is needed")
    codec = _codec(needed=_TEXT.value is not None)
    prefix = _DECODER_INPUT_IDS.value
    request = StreamRequest(
        model=_MODEL.value,
        input_ids=(
            parameters.parse_ids(_INPUT_IDS.value)
            if _TEXT.value is None
            else codec.encode(_TEXT.value)
        ),
        parameters={"response_interval_ms": 0} | parameters.parse_parameters(_PARAM.value),
        decoder_input_ids=parameters.parse_ids(prefix) if prefix is not None else None,
    )
    with StreamClient(_URL.value) as client:
        printer = print_json if _JSON.value else print_text
        printer(client.stream(request), codec, sys.stdout)


def _codec(needed: bool) -> TextCodec | None:
    if _TOKENIZER.value is not None:
        return TextCodec(paths.from_user(_TOKENIZER.value))
    known = paths.room_file("models") / Path(_MODEL.value).name / "checkpoint"
    if (known / "tokenizer.json").is_file():
        return TextCodec(known)
    if needed:
        raise ToolError(
            f"--text needs --tokenizer=DIR, the folder of {_MODEL.value}'s tokenizer.json"
        )
    return None


if __name__ == "__main__":
    command.run(main)
