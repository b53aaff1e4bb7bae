"""Writes a checkpoint with random weights, to measure with: bench, or other engines beside it.

  random_checkpoint --shape=t5_1_5b --output=DIR [--dtype=bfloat16] [--seed=0]

The shape is t5_small, t5_1_5b (1.52e9 parameters, embeddings not counted), or a folder with a
config.json. The same seed gives the same weights; what they generate means nothing, but varies as
real answers do.
"""

from collections.abc import Sequence

from absl import flags

from tools.lib import command, model_shapes, paths
from tools.lib.checkpoint_writer import DTYPES, write_checkpoint
from tools.lib.errors import ToolError
from tools.lib.random_weights import RandomWeights

_SHAPE = flags.DEFINE_string("shape", None, "The model's shape.", required=True)
_OUTPUT = flags.DEFINE_string(
    "output", None, "The checkpoint's folder; must not exist.", required=True
)
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", DTYPES, "How the weights are stored.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the weights.", lower_bound=0)


def main(arguments: Sequence[str]) -> None:
    """Writes it and says where."""
    command.refuse_arguments(arguments)
    folder = paths.from_user(_OUTPUT.value)
    config = model_shapes.shape(_SHAPE.value)
    try:
        write_checkpoint(folder, config, RandomWeights(config, _SEED.value), _DTYPE.value)
    except OSError as error:
        raise ToolError(f"{error.filename or folder}: {error.strerror}") from error
    print(folder)


if __name__ == "__main__":
    command.run(main)
