"""What one writes without this backend: transformers in Triton's Python backend.

A decoupled model. Every request gets a thread that calls generate() and sends each token as a
response; the last one is an empty response with the FINAL flag.
"""

import json
import pathlib
import threading
from typing import Any

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from transformers import AutoModelForSeq2SeqLM
from transformers.generation.streamers import BaseStreamer


class _CancelledError(Exception):
    """Whoever asked has gone; ends generate()."""


class _ResponseStreamer(BaseStreamer):
    """Sends what generate() puts into it, but for the decoder's start token."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._started = False

    def put(self, value: torch.Tensor) -> None:
        """One token of the one sequence, on the CPU."""
        if self._sender.is_cancelled():
            raise _CancelledError
        if not self._started:
            self._started = True
            return
        ids = pb_utils.Tensor("output_ids", value.reshape(-1).numpy().astype(np.int32))
        self._sender.send(pb_utils.InferenceResponse([ids]))

    def end(self) -> None:
        """The end is told by whoever called generate()."""


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the checkpoint that lies beside this file, and makes first use of everything."""
        on_gpu = args["model_instance_kind"] == "GPU"
        self._device = f"cuda:{args['model_instance_device_id']}" if on_gpu else "cpu"
        folder = pathlib.Path(args["model_repository"]) / args["model_version"]
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype="auto")
        self._model = model.to(self._device).eval()
        self._model.generate(
            torch.ones(1, 16, dtype=torch.int64, device=self._device), max_length=3
        )
        self._threads: list[threading.Thread] = []

    def execute(self, requests: list[Any]) -> None:
        """Takes requests in; their answers come from their threads."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for request in requests:
            sender = request.get_response_sender()
            ids = pb_utils.get_input_tensor_by_name(request, "input_ids").as_numpy()
            options = json.loads(request.parameters())
            thread = threading.Thread(target=self._answer, args=(sender, ids, options))
            thread.start()
            self._threads.append(thread)

    def finalize(self) -> None:
        """Waits for the answers that are under way."""
        for thread in self._threads:
            thread.join()

    def _answer(self, sender: Any, ids: np.ndarray, options: dict[str, Any]) -> None:
        error = None
        try:
            source = torch.from_numpy(ids.astype(np.int64)).to(self._device)[None]
            with torch.inference_mode():
                self._model.generate(
                    source,
                    attention_mask=torch.ones_like(source),
                    streamer=_ResponseStreamer(sender),
                    max_new_tokens=options["max_new_tokens"],
                    min_new_tokens=options.get("min_new_tokens"),
                    do_sample=False,
                    num_beams=1,
                )
        except _CancelledError:
            error = pb_utils.TritonError(
                "the request was cancelled", pb_utils.TritonError.CANCELLED
            )
        except Exception as failure:
            error = pb_utils.TritonError(f"INTERNAL: {failure}")
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        if error is None:
            sender.send(flags=final)
        else:
            sender.send(pb_utils.InferenceResponse(error=error), flags=final)
