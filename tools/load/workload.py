"""What is asked: sources of random ids, and how many tokens each answer is to have."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tools.lib.checkpoint_writer import EOS_ID
from tools.lib.client import StreamRequest, to_message
from tools.lib.errors import ToolError
from tools.lib.parameters import Parameter
from tools.load.lengths import Lengths

# Below are pad, EOS and the unknown token.
FIRST_ORDINARY_ID = 3

_OWN_PARAMETERS = ("max_new_tokens", "min_new_tokens")


@dataclasses.dataclass(frozen=True)
class Workload:
    """Requests of one kind.

    Attributes:
      model: whom to ask.
      vocab_size: ids are below it.
      source_tokens: length of a source, EOS behind it included.
      new_tokens: length of an answer; the most it may have unless `ban_eos`.
      ban_eos: EOS is suppressed until all tokens are there (min_new_tokens).
      parameters: further options of the requests.
      seed: the same seed gives the same requests.
    """

    model: str
    vocab_size: int
    source_tokens: Lengths
    new_tokens: Lengths
    ban_eos: bool = True
    parameters: Mapping[str, Parameter] = dataclasses.field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses what cannot be asked."""
        if self.vocab_size <= FIRST_ORDINARY_ID:
            raise ToolError(f"vocab_size {self.vocab_size}: more than {FIRST_ORDINARY_ID} expected")
        for name in _OWN_PARAMETERS:
            if name in self.parameters:
                raise ToolError(f"parameter {name}: --new_tokens and --ban_eos say it")


@dataclasses.dataclass(frozen=True)
class LoadRequest:
    """A serialized request, and how many tokens its answer must have; None: EOS may end it."""

    message: bytes
    new_tokens: int | None


def make_request(
    model: str,
    source: Sequence[int],
    new_tokens: int,
    parameters: Mapping[str, Parameter],
    ban_eos: bool = True,
) -> LoadRequest:
    """Asks for `new_tokens` tokens; at most so many unless `ban_eos`."""
    own = {"max_new_tokens": new_tokens} | ({"min_new_tokens": new_tokens} if ban_eos else {})
    message = to_message(StreamRequest(model, source, {**parameters, **own}))
    return LoadRequest(message.SerializeToString(), new_tokens if ban_eos else None)


def make_requests(workload: Workload, count: int, part: int) -> list[LoadRequest]:
    """So many requests; every `part` (the process that sends them) has its own."""
    generator = np.random.default_rng([workload.seed, part])
    return [_request(workload, generator) for _ in range(count)]


def _request(workload: Workload, generator: np.random.Generator) -> LoadRequest:
    source = generator.integers(
        FIRST_ORDINARY_ID, workload.vocab_size, workload.source_tokens.draw(generator)
    )
    source[-1] = EOS_ID
    new_tokens = workload.new_tokens.draw(generator)
    return make_request(
        workload.model, source.tolist(), new_tokens, workload.parameters, workload.ban_eos
    )
