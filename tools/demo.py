"""Shows it working: streams the phones of an English text from a real server.

  demo [--text="hello world"]

Assembles the T5 of models/g2p_t5 into a temporary repository, starts the pinned Triton server with
the backend built here on free loopback ports, prints phones (ARPAbet, "|" between words) as they
are generated, and stops it.
"""

from collections.abc import Sequence

from absl import flags

from tools.lib import command, installation, paths
from tools.lib.demo import run_demo

_TEXT = flags.DEFINE_string("text", "hello world", "English text: letters and apostrophes count.")
_TRITONSERVER = flags.DEFINE_string(
    "tritonserver", None, "Another tritonserver than the pinned one."
)
_BACKENDS = flags.DEFINE_string(
    "backend_directory",
    None,
    "Another folder with seq2seq/libtriton_seq2seq.so than the built one.",
)


def main(arguments: Sequence[str]) -> None:
    """Runs the demo."""
    command.refuse_arguments(arguments)
    run_demo(
        text=_TEXT.value,
        checkpoint=paths.room_file("models/g2p_t5/checkpoint"),
        tritonserver=installation.tritonserver(_TRITONSERVER.value),
        backend_directory=installation.backend_directory(_BACKENDS.value),
    )


if __name__ == "__main__":
    command.run(main)
