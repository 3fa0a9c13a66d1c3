"""The sandbox of one run: what its programs wait for is kept with the run's other steps."""

import secrets
from typing import TYPE_CHECKING

from toolwire.runtime.steps import Steps
from toolwire.runtime.toolset import Calling

if TYPE_CHECKING:
    from .tool import Sandbox

_KEY = "code/key"


def coding_sandbox(steps: Steps) -> "Sandbox":
    """A snapshot is sealed with a key of the run: whoever can write the journal could change it, nobody else."""
    from .tool import Keeping, Sandbox  # noqa: PLC0415 - only who runs programs needs it

    key = steps.outcome(_KEY)
    if key is None:
        key = secrets.token_bytes(32)
        steps.finish(_KEY, key)

    def kept(calling: Calling) -> Steps:
        return steps

    return Sandbox(keeping=Keeping(kept, key))
