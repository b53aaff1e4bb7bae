"""Makes a model's folder in a Triton repository from a Hugging Face checkpoint of the T5 family.

  assemble --checkpoint=DIR --repository=DIR --name=NAME [--option=key=value ...]

The checkpoint (config.json, safetensors, tokenizer files) is checked as the backend checks it and
brought as it is to REPOSITORY/NAME/1, beside a config.pbtxt. It is all or nothing: an error names
file and key, and leaves the repository as it was. Options are described in docs/config.md.
"""

from collections.abc import Sequence

from absl import flags

from tools.lib import command, options, paths
from tools.lib.assemble import AssembleRequest, assemble
from tools.lib.config_writer import INSTANCE_KINDS, ModelConfigText

_CHECKPOINT = flags.DEFINE_string("checkpoint", None, "The checkpoint's folder.", required=True)
_REPOSITORY = flags.DEFINE_string(
    "repository", None, "The model repository; made if it does not exist.", required=True
)
_NAME = flags.DEFINE_string("name", None, "The model's name in the repository.", required=True)
_OPTION = flags.DEFINE_multi_string(
    "option", [], f"key=value for config.pbtxt; repeatable. Keys: {', '.join(options.OPTIONS)}."
)
_KIND = flags.DEFINE_enum(
    "instance_kind",
    "KIND_AUTO",
    INSTANCE_KINDS,
    "Where instances run; KIND_AUTO is every GPU of the server's machine, else the CPU.",
)
_COUNT = flags.DEFINE_integer("instance_count", 1, "Instances of the model.", lower_bound=1)
_OVERWRITE = flags.DEFINE_boolean("overwrite", False, "Replace a model of that name.")
_LINK = flags.DEFINE_boolean(
    "link", False, "Hard links to the checkpoint's files instead of copies (same file system)."
)


def main(arguments: Sequence[str]) -> None:
    """Assembles and says where."""
    command.refuse_arguments(arguments)
    config = ModelConfigText(
        name=_NAME.value,
        instance_kind=_KIND.value,
        instance_count=_COUNT.value,
        options=options.parse_options(_OPTION.value),
    )
    model = assemble(
        AssembleRequest(
            checkpoint=paths.from_user(_CHECKPOINT.value),
            repository=paths.from_user(_REPOSITORY.value),
            config=config,
            overwrite=_OVERWRITE.value,
            link=_LINK.value,
        )
    )
    print(model)


if __name__ == "__main__":
    command.run(main)
