"""CTranslate2, measured in the process that runs this."""

import time

import ctranslate2

from benchmarks.cpu.measurement import Measurement


class PeerEngine:
    """One translator; all its threads work on one batch."""

    def __init__(
        self, model: str, threads: int, device: str = "cpu", compute_type: str = "float32"
    ) -> None:
        """Loads the model in the folder `model`; `threads` matter on the CPU only."""
        self._translator = ctranslate2.Translator(
            model,
            device=device,
            compute_type=compute_type,
            inter_threads=1,
            intra_threads=threads,
        )

    def measure(self, sources: list[list[int]], new_tokens: int) -> Measurement:
        """Generates exactly `new_tokens` for each source, all in one batch.

        The time to the first token is that of a second call, since listening to tokens costs the
        first one time: it ends when every sequence has one token.
        """
        batch = [[str(index) for index in source] for source in sources]
        begin = time.perf_counter()
        results = self._translate(batch, new_tokens)
        seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        self._translate(batch, 1)
        first_token_seconds = time.perf_counter() - begin
        ids = [[int(token) for token in result.hypotheses[0]] for result in results]
        return Measurement(seconds, first_token_seconds, ids)

    def _translate(
        self, batch: list[list[str]], new_tokens: int
    ) -> list[ctranslate2.TranslationResult]:
        # A whole batch at once, greedily; below the least length EOS is suppressed.
        return self._translator.translate_batch(
            batch,
            max_batch_size=0,
            beam_size=1,
            min_decoding_length=new_tokens,
            max_decoding_length=new_tokens,
        )
