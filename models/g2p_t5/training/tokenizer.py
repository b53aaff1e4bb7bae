"""The model's tokenizer: letters in, phones out, one vocabulary for both."""

import string
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from models.g2p_t5.training.pronunciations import Pronunciations

PAD, EOS, UNKNOWN, SEPARATOR = 0, 1, 2, 3
SEPARATOR_TOKEN = "|"
MAX_TOKENS = 80


def make_vocabulary(splits: Iterable[Pronunciations]) -> dict[str, int]:
    """Special tokens, the separator of words, apostrophe, letters, then the phones in order."""
    phones = {
        phone
        for words in splits
        for pronunciations in words.values()
        for pronunciation in pronunciations
        for phone in pronunciation
    }
    tokens = ["<pad>", "</s>", "<unk>", SEPARATOR_TOKEN, "'", *string.ascii_lowercase]
    return {token: index for index, token in enumerate([*tokens, *sorted(phones)])}


def make_tokenizer(vocabulary: dict[str, int]) -> PreTrainedTokenizerFast:
    """Lower-cases, takes accents off, turns what is no letter into the separator, ends with EOS."""
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[\u2018\u2019`]"), "'"),
            normalizers.Replace(Regex(r"[^a-z']+"), " "),
            normalizers.Strip(),
            normalizers.Replace(" ", SEPARATOR_TOKEN),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", EOS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=MAX_TOKENS,
        clean_up_tokenization_spaces=False,
        padding_side="right",
    )
