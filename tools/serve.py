"""Serves a model repository with the pinned Triton server and the backend built here.

  serve --repository=DIR [--http_port=8000 --grpc_port=8001 --metrics_port=8002] [-- server flags]

Prints where the server listens once every model is loaded, then the server's log. Ctrl-C is
passed on, as are SIGTERM and the end of the terminal: streams in flight are finished. A second
one kills. The exit code is the server's.
"""

from collections.abc import Sequence

from absl import flags

from tools.lib import command, installation, paths
from tools.lib.server_process import CONTROL_MODES, ServerOptions
from tools.lib.serving import ForegroundServer

_REPOSITORY = flags.DEFINE_string("repository", None, "The model repository.", required=True)
_HTTP = flags.DEFINE_integer("http_port", 8000, "HTTP port.", lower_bound=1, upper_bound=65535)
_GRPC = flags.DEFINE_integer("grpc_port", 8001, "gRPC port.", lower_bound=1, upper_bound=65535)
_METRICS = flags.DEFINE_integer(
    "metrics_port", 8002, "Port of /metrics.", lower_bound=1, upper_bound=65535
)
_HOST = flags.DEFINE_string(
    "host", "127.0.0.1", "Address to bind to; 0.0.0.0 makes the server reachable from elsewhere."
)
_CONTROL = flags.DEFINE_enum(
    "model_control_mode", "none", CONTROL_MODES, "Triton's --model-control-mode."
)
_READY = flags.DEFINE_float(
    "ready_seconds", 300.0, "Give up if the models are not loaded by then.", lower_bound=1.0
)
_TRITONSERVER = flags.DEFINE_string(
    "tritonserver", None, "Another tritonserver than the pinned one."
)
_BACKENDS = flags.DEFINE_string(
    "backend_directory",
    None,
    "Another folder with seq2seq/libtriton_seq2seq.so than the built one.",
)


def main(arguments: Sequence[str]) -> int:
    """Runs the server in the foreground."""
    return ForegroundServer(
        ServerOptions(
            tritonserver=installation.tritonserver(_TRITONSERVER.value),
            backend_directory=installation.backend_directory(_BACKENDS.value),
            repository=paths.from_user(_REPOSITORY.value),
            http_port=_HTTP.value,
            grpc_port=_GRPC.value,
            metrics_port=_METRICS.value,
            host=_HOST.value,
            model_control_mode=_CONTROL.value,
            extra_flags=tuple(arguments),
        )
    ).run(_READY.value)


if __name__ == "__main__":
    command.run(main)
