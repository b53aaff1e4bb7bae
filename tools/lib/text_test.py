"""Ids as the model's own tokenizer gives them; pieces of text that add up to the one-shot text."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
)

from tools.lib.errors import ToolError
from tools.lib.paths import room_file
from tools.lib.text import IncrementalDecoder, TextCodec

G2P = "models/g2p_t5/checkpoint"


def saved(tokenizer: Tokenizer, directory: Path) -> TextCodec:
    tokenizer.save(str(directory / "tokenizer.json"))
    return TextCodec(directory)


def byte_level(directory: Path) -> TextCodec:
    """Every byte a token: characters of several bytes are split over ids."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"</s>": 0} | {symbol: index + 1 for index, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 0)]
    )
    return saved(tokenizer, directory)


def metaspace(directory: Path) -> TextCodec:
    """As SentencePiece models do it: words begin with a mark, the first blank is taken off."""
    pieces = ["</s>", "<unk>", "▁the", "▁", "cat", "s", "▁sat", ".", "▁a"]
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=1))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    return saved(tokenizer, directory)


def joined(codec: TextCodec, ids: list[int], sizes: random.Random) -> str:
    decoder = IncrementalDecoder(codec)
    pieces = []
    while ids:
        count = sizes.randint(0, 3)
        pieces.append(decoder.add(ids[:count]))
        ids = ids[count:]
    return "".join(pieces) + decoder.finish()


def test_encodes_as_the_model_expects() -> None:
    # The vocabulary of models/g2p_t5: </s> 1, | 3, then letters from a = 5.
    letters = {letter: 5 + index for index, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
    expected = [letters[letter] for letter in "hello"] + [3] + [letters[x] for x in "world"] + [1]
    assert TextCodec(room_file(G2P)).encode("Hello, World!") == expected


def test_neither_pads_nor_truncates() -> None:
    assert len(TextCodec(room_file(G2P)).encode("a" * 5000)) == 5001


def test_special_tokens_are_no_text() -> None:
    codec = TextCodec(room_file(G2P))
    assert codec.decode([0, 5, 6, 1]) == "a b"


@pytest.mark.parametrize("make", [byte_level, metaspace])
def test_pieces_joined_equal_the_one_shot_text(
    tmp_path: Path, make: Callable[[Path], TextCodec]
) -> None:
    codec = make(tmp_path)
    sizes = random.Random(1)
    texts = [
        "the cats sat.",
        "",
        "na\u00efve \u4e2d\u6587 \U0001f600!",
        "  two  blanks ",
        "\n\ttab",
    ]
    for text in texts:
        ids = codec.encode(text)
        for _ in range(20):
            assert joined(codec, ids, sizes) == codec.decode(ids)
    for _ in range(200):
        ids = [
            sizes.randrange(9 if make is metaspace else 257) for _ in range(sizes.randint(0, 12))
        ]
        assert joined(codec, ids, sizes) == codec.decode(ids)


def test_an_unfinished_character_waits(tmp_path: Path) -> None:
    codec = byte_level(tmp_path)
    ids = codec.encode("\u00e9")
    decoder = IncrementalDecoder(codec)
    assert [decoder.add([token]) for token in ids] == ["", "\u00e9", ""]
    decoder = IncrementalDecoder(codec)
    assert decoder.add(ids[:1]) == ""
    assert decoder.finish() == codec.decode(ids[:1])


def test_names_the_file_that_is_missing_or_broken(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"tokenizer\.json: no such file"):
        TextCodec(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ToolError, match=r"tokenizer\.json: not a tokenizer"):
        TextCodec(tmp_path)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
