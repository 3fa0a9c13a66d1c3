"""The sandbox of one run: what its programs wait for is kept with the run's other steps."""

import secrets
from typing import TYPE_CHECKING

from toolwire.runtime.run.step_log import StepLog
from toolwire.runtime.tool import ToolContext

if TYPE_CHECKING:
    from toolwire.runtime.sandbox.code.tool import CodeSandbox

_KEY_STEP = "code/key"


def durable_sandbox(steps: StepLog) -> "CodeSandbox":
    """A snapshot is sealed with a key of the run: whoever can write the journal could change it, nobody else."""
    from toolwire.runtime.sandbox.code.tool import CodeSandbox, SnapshotStore  # noqa: PLC0415 - only who runs programs needs it

    key = steps.outcome(_KEY_STEP)
    if key is None:
        key = secrets.token_bytes(32)
        steps.finish(_KEY_STEP, key)

    def kept(calling: ToolContext) -> StepLog:
        return steps

    return CodeSandbox(snapshots=SnapshotStore(kept, key))
