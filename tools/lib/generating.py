"""Prints a stream of responses, as text or as JSON lines."""

import json
import sys
from collections.abc import Iterable
from typing import TextIO

from tools.lib.client import StreamResponse
from tools.lib.text import IncrementalDecoder, TextCodec


def print_text(
    responses: Iterable[StreamResponse], codec: TextCodec | None, out: TextIO = sys.stdout
) -> None:
    """Writes the text (without a codec: the ids) as it comes, and a newline at the end.

    If an error ends the stream, the newline is written first.
    """
    decoder = IncrementalDecoder(codec) if codec else None
    wrote = False
    try:
        for response in responses:
            if decoder is not None:
                piece = decoder.add(response.output_ids)
                piece += decoder.finish() if response.final else ""
            else:
                piece = "".join(f"{token} " for token in response.output_ids)
            wrote = wrote or bool(piece)
            out.write(piece)
            out.flush()
    except BaseException:
        if wrote:
            out.write("\n")
            out.flush()
        raise
    out.write("\n")
    out.flush()


def print_json(
    responses: Iterable[StreamResponse], codec: TextCodec | None, out: TextIO = sys.stdout
) -> None:
    """Writes one JSON object a response.

    It has output_ids, text (null without a codec), parameters, final; and logprobs, where there are
    any.
    """
    decoder = IncrementalDecoder(codec) if codec else None
    for response in responses:
        text = None
        if decoder is not None:
            text = decoder.add(response.output_ids)
            text += decoder.finish() if response.final else ""
        line = {
            "output_ids": response.output_ids,
            "text": text,
            "parameters": response.parameters,
            "final": response.final,
        }
        if response.logprobs:
            line["logprobs"] = response.logprobs
        out.write(json.dumps(line, ensure_ascii=False) + "\n")
        out.flush()
