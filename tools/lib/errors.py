"""The one exception that mains turn into a line on standard error and a non-zero exit code."""


class ToolError(Exception):
    """Something that the user can act on; the message names what was wrong and where."""
