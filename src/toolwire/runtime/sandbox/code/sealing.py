"""Sealed snapshots: the interpreter believes whatever it is given, so only what we wrote ourselves is given to it.

A seal binds a snapshot to the call that it belongs to, and to the version of the interpreter that can read it.
"""

import hashlib
import hmac

from pydantic_monty import __version__

from toolwire.canonical.errors import ToolwireError

_MARK = b"twcode1\0"
_LENGTH = hashlib.sha256().digest_size


class SnapshotRefused(ToolwireError):
    """It is not ours, not of this call, or was changed."""


def seal(snapshot: bytes, key: bytes, purpose: str) -> bytes:
    return _MARK + _code(snapshot, key, purpose) + snapshot


def unseal(sealed: bytes, key: bytes, purpose: str) -> bytes:
    start = len(_MARK) + _LENGTH
    snapshot = sealed[start:]
    known = sealed[: len(_MARK)] == _MARK
    if not known or not hmac.compare_digest(sealed[len(_MARK) : start], _code(snapshot, key, purpose)):
        raise SnapshotRefused("the snapshot of the program was not written here for this call: it is not gone on with")
    return snapshot


def _code(snapshot: bytes, key: bytes, purpose: str) -> bytes:
    bound = b"\0".join([_MARK, __version__.encode(), hashlib.sha256(purpose.encode()).digest(), snapshot])
    return hmac.digest(key, bound, "sha256")
