"""What one engine did in one round."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Measurement:
    """All sequences of a round, sent at once.

    Attributes:
      seconds: from sending to the last token of the last sequence.
      first_token_seconds: from sending to the first token: the sequences' mean behind a server,
        the last sequence's where an engine takes them as one batch.
      ids: what each sequence generated, in the order of the sources.
    """

    seconds: float
    first_token_seconds: float
    ids: list[list[int]]
