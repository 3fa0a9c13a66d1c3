"""Regular expressions that a model wrote, matched by re2: in time linear in the text, so that none holds things up."""

from typing import Any

import re2

from toolwire.runtime.toolset import ToolFault

escape = re2.escape


def compiled(pattern: str | bytes) -> Any:
    options = re2.Options()
    # It would write them to stderr.
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        told = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise ToolFault(f"the pattern can't be used: {told}", "pattern") from error
