"""Text to token ids and back on the client's side, with the model's own tokenizer.json."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer

from tools.lib.errors import ToolError

# What a decoder puts in place of bytes that are not (yet) a whole UTF-8 character.
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class TextCodec:
    """A checkpoint's tokenizer. Safe to use from several threads."""

    def __init__(self, directory: Path) -> None:
        """Loads <directory>/tokenizer.json; raises ToolError naming the file."""
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise ToolError(
                f"{path}: no such file; text needs a tokenizer (ids do not: --input_ids)"
            )
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # The library raises bare Exception.
            raise ToolError(f"{path}: not a tokenizer: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def encode(self, text: str) -> list[int]:
        """Ids as the model expects its source: with what the post-processor adds (EOS, for T5)."""
        return self._tokenizer.encode(text).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of all `ids` at once, without special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


class IncrementalDecoder:
    """Turns ids into text piece by piece, so that the pieces joined equal the one-shot text.

    A piece is what the text of all ids so far has beyond what was given out. Text that more ids may
    still change is held back: an unfinished UTF-8 character, or an end that the tokenizer's decoder
    rewrites.
    """

    def __init__(self, codec: TextCodec) -> None:
        """Decodes one sequence of ids."""
        self._codec = codec
        self._ids: list[int] = []
        self._given = ""

    def add(self, ids: Iterable[int]) -> str:
        """Returns the text that became certain with these ids; may be empty."""
        self._ids.extend(ids)
        text = self._codec.decode(self._ids)
        return self._give(text.rstrip(_REPLACEMENT))

    def finish(self) -> str:
        """Returns what was held back. Nothing can be added afterwards."""
        return self._give(self._codec.decode(self._ids))

    def _give(self, text: str) -> str:
        if not text.startswith(self._given):
            return ""
        piece = text[len(self._given) :]
        self._given = text
        return piece
