"""Loads a model with concurrent streams over gRPC and reports throughput and latencies.

  bench --url=localhost:8001 --model=NAME
  bench --checkpoint=DIR [--option=key=value ...]
  bench --shape=t5_small [--dtype=bfloat16]

The first asks a server that runs. The others start one on free ports, with a checkpoint or with
random weights of a shape (t5_small, t5_1_5b, or a folder with a config.json), and stop it again.

Closed loops come first: --streams requests are under way at all times. Then open loops: requests
arrive at random (Poisson) at --rates a second, whatever became of those before, and their times
count from when they were to be sent. Rates in percent are of the requests a second that the closed
loop with --reference_streams reached. docs/benchmarks.md explains the columns.

Flags for the server itself may follow a "--".
"""

import os
import sys
from collections.abc import Sequence

from absl import flags

from tools.lib import command, installation, model_shapes, options, parameters, paths
from tools.lib.checkpoint_writer import DTYPES
from tools.lib.config_writer import INSTANCE_KINDS
from tools.lib.errors import ToolError
from tools.load import report
from tools.load.doubts import doubts
from tools.load.lengths import parse_lengths
from tools.load.measuring import Measured, Plan
from tools.load.served import ENGINES, ServeRequest, Target, served
from tools.load.server_facts import server_facts
from tools.load.session import Session, parse_rate, run_session
from tools.load.workload import Workload

_MOST_PROCESSES = 8
# With --url nobody says how large the vocabulary is; every model knows these ids.
_SAFE_VOCAB_SIZE = 64

_URL = flags.DEFINE_string("url", None, "host:port of a running server's gRPC endpoint.")
_MODEL = flags.DEFINE_string("model", None, "With --url: the model's name.")
_VOCAB_SIZE = flags.DEFINE_integer(
    "vocab_size",
    None,
    f"Source ids are below it; by default the checkpoint's, with --url {_SAFE_VOCAB_SIZE}.",
    lower_bound=4,
)
_CHECKPOINT = flags.DEFINE_string("checkpoint", None, "Folder of a checkpoint to serve.")
_SHAPE = flags.DEFINE_string("shape", None, "Shape to serve with random weights.")
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", DTYPES, "With --shape: the type of the weights.")
_ENGINE = flags.DEFINE_enum(
    "engine",
    "seq2seq",
    ENGINES,
    "With --checkpoint or --shape: this backend, or transformers in Triton's Python backend.",
)
_OPTION = flags.DEFINE_multi_string("option", [], "key=value for config.pbtxt; repeatable.")
_KIND = flags.DEFINE_enum("instance_kind", "KIND_AUTO", INSTANCE_KINDS, "Where instances run.")
_COUNT = flags.DEFINE_integer("instance_count", 1, "Instances of the model.", lower_bound=1)
_SERVER_ENV = flags.DEFINE_multi_string(
    "server_env", [], "NAME=value for the environment of the server; repeatable."
)
_READY = flags.DEFINE_float(
    "ready_seconds", 300.0, "Give up if the model is not loaded by then.", lower_bound=1.0
)

_STREAMS = flags.DEFINE_list(
    "streams", ["1", "16", "64", "256", "512"], "Closed loops: requests under way at once."
)
_RATES = flags.DEFINE_list("rates", [], "Open loops: requests a second, or shares such as 30%,70%.")
_REFERENCE = flags.DEFINE_integer(
    "reference_streams", 64, "The closed loop that shares are of.", lower_bound=1
)
_SECONDS = flags.DEFINE_float("seconds", 10.0, "Length of a measurement.", lower_bound=0.1)
_WARMUP = flags.DEFINE_float(
    "warmup", 2.0, "Seconds of the same load before each measurement.", lower_bound=0.0
)
_REQUESTS = flags.DEFINE_integer(
    "requests", None, "Measure so many requests each instead of --seconds.", lower_bound=1
)
_DRAIN = flags.DEFINE_float(
    "drain", 60.0, "Seconds after a measurement until what is under way is cancelled.", 0.0
)

_SOURCE = flags.DEFINE_string("source_tokens", "512", "Length of a source: 512, or 64-512.")
_NEW = flags.DEFINE_string("new_tokens", "128", "Length of an answer: 128, or 16-128.")
_BAN_EOS = flags.DEFINE_boolean(
    "ban_eos", True, "Suppress EOS, so that every answer has all of its --new_tokens."
)
_PARAM = flags.DEFINE_multi_string(
    "param", [], "name=value, an option of the requests; repeatable. Else response_interval_ms=0."
)
_SEED = flags.DEFINE_integer("seed", 0, "Of weights, sources and arrivals.", lower_bound=0)
_PROCESSES = flags.DEFINE_integer(
    "processes",
    None,
    f"Client processes; by default half the cores, at most {_MOST_PROCESSES}.",
    lower_bound=1,
)
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for everything; plots go beside it.")
_TRITONSERVER = flags.DEFINE_string(
    "tritonserver", None, "Another tritonserver than the pinned one."
)
_BACKENDS = flags.DEFINE_string(
    "backend_directory",
    None,
    "Another folder with seq2seq/libtriton_seq2seq.so than the built one.",
)


def main(arguments: Sequence[str]) -> None:
    """Measures and reports."""
    _refuse_idle_flags()
    session = _session()
    if _URL.value is not None:
        command.refuse_arguments(arguments)
        if _MODEL.value is None:
            raise ToolError("--url needs --model, the name of the model to ask")
        target = Target(_URL.value, _MODEL.value, _SAFE_VOCAB_SIZE)
        _measure(session, target)
        return
    with served(_serve_request(arguments)) as target:
        _measure(session, target)


def _measure(session: Session, target: Target) -> None:
    about = server_facts(target.address, target.model)
    points: list[Measured] = []
    try:
        run_session(session, target, _workload(target), points)
    except (ToolError, KeyboardInterrupt, SystemExit) as error:
        if points:
            _report(points, about, str(error) if isinstance(error, ToolError) else "interrupted")
        raise
    _report(points, about, None)


def _report(points: list[Measured], about: dict[str, str], failure: str | None) -> None:
    print(report.table(points))
    for point in points:
        for text in doubts(point):
            print(f"warning: {point.load}: {text}", file=sys.stderr)
    if _OUTPUT.value:
        values = report.facts(points, _flag_values(), about, failure)
        for path in report.write(paths.from_user(_OUTPUT.value), values):
            print(f"written: {path}", file=sys.stderr)


def _session() -> Session:
    try:
        streams = [int(text) for text in _STREAMS.value]
    except ValueError as error:
        raise ToolError(f"streams {','.join(_STREAMS.value)!r}: expected integers") from error
    cores = len(os.sched_getaffinity(0))
    return Session(
        streams=streams,
        rates=[parse_rate(text) for text in _RATES.value],
        reference_streams=_REFERENCE.value,
        processes=_PROCESSES.value or min(_MOST_PROCESSES, max(1, cores // 2)),
        plan=Plan(_WARMUP.value, _SECONDS.value, _REQUESTS.value, _DRAIN.value, _SEED.value),
    )


def _workload(target: Target) -> Workload:
    return Workload(
        model=target.model,
        vocab_size=_VOCAB_SIZE.value or target.vocab_size,
        source_tokens=parse_lengths("source_tokens", _SOURCE.value),
        new_tokens=parse_lengths("new_tokens", _NEW.value),
        ban_eos=_BAN_EOS.value,
        parameters={"response_interval_ms": 0} | parameters.parse_parameters(_PARAM.value),
        seed=_SEED.value,
    )


def _refuse_idle_flags() -> None:
    """A flag that would change nothing was given for a reason."""
    asks = _URL.value is not None
    own_server = (
        _CHECKPOINT,
        _SHAPE,
        _ENGINE,
        _KIND,
        _SERVER_ENV,
        _READY,
        _TRITONSERVER,
        _BACKENDS,
    )
    for applies, what, idle in (
        (not asks, "a server that is started here, not for --url", (*own_server, _OPTION, _COUNT)),
        (asks, "--url", (_MODEL,)),
        (_SHAPE.value is not None, "--shape", (_DTYPE,)),
        (_ENGINE.value == "seq2seq", "--engine=seq2seq", (_OPTION, _COUNT)),
        (_REQUESTS.value is None, "a measurement without --requests", (_SECONDS, _DRAIN)),
        (any("%" in text for text in _RATES.value), "--rates in %", (_REFERENCE,)),
    ):
        for flag in idle:
            if flag.present and not applies:
                raise ToolError(f"--{flag.name} is for {what}")


def _serve_request(arguments: Sequence[str]) -> ServeRequest:
    if (_CHECKPOINT.value is None) == (_SHAPE.value is None):
        raise ToolError("exactly one of --url, --checkpoint and --shape is needed")
    return ServeRequest(
        tritonserver=installation.tritonserver(_TRITONSERVER.value),
        backend_directory=installation.backend_directory(_BACKENDS.value),
        baseline=paths.room_file("benchmarks/python_baseline"),
        engine=_ENGINE.value,
        checkpoint=paths.from_user(_CHECKPOINT.value) if _CHECKPOINT.value else None,
        shape=model_shapes.shape(_SHAPE.value) if _SHAPE.value else None,
        dtype=_DTYPE.value,
        seed=_SEED.value,
        instance_kind=_KIND.value,
        instance_count=_COUNT.value,
        options=options.parse_options(_OPTION.value),
        ready_seconds=_READY.value,
        environment=_server_environment(),
        server_flags=tuple(arguments),
    )


def _server_environment() -> dict[str, str]:
    settings = [setting.partition("=") for setting in _SERVER_ENV.value]
    for name, equals, value in settings:
        if not name or not equals:
            raise ToolError(f"server_env {name + value!r}: expected NAME=value")
    return {name: value for name, _, value in settings}


def _flag_values() -> dict[str, object]:
    """The flags of this command, as they were given or by default."""
    return {flag.name: flag.value for flag in flags.FLAGS.get_key_flags_for_module(sys.argv[0])}


if __name__ == "__main__":
    command.run(main)
