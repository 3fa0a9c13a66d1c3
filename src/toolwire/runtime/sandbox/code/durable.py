"""The code sandbox of a durable run: snapshots of its programs are stored with the run's steps."""

import secrets
from typing import TYPE_CHECKING

from toolwire.installation import require_extra
from toolwire.runtime.run.step_log import StepLog
from toolwire.runtime.tool import ToolContext

if TYPE_CHECKING:
    from toolwire.runtime.sandbox.code.tool import CodeSandbox

_KEY_STEP = "code/key"


def durable_sandbox(steps: StepLog) -> "CodeSandbox":
    """Return a sandbox that signs its snapshots with a key stored in the run's step log."""
    with require_extra("code", "running programs of the model"):
        from toolwire.runtime.sandbox.code.tool import CodeSandbox, SnapshotStore  # noqa: PLC0415 - needed only to run programs

    key = steps.outcome(_KEY_STEP)
    if key is None:
        key = secrets.token_bytes(32)
        steps.finish(_KEY_STEP, key)

    def run_steps(context: ToolContext) -> StepLog:
        """Return the step log of the run, whatever the call."""
        return steps

    return CodeSandbox(snapshots=SnapshotStore(run_steps, key))
