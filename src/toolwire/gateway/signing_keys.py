"""Keys that sign envelopes: configured, derived from the server's keys, or generated once and saved."""

import hashlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from toolwire.gateway.config import Config, ServerSection, state_directory


def describe_missing_keys(config: Config) -> str | None:
    """Return why gateways that share a database could not read each other's envelopes; None if they can."""
    if config.state.url is None or config.server.seal_keys or config.server.keys:
        return None
    return (
        "gateways that share state.url need the same keys to read each other's envelopes: set server.seal_keys "
        "(any long random text), or server.keys"
    )


def load_signing_keys(server: ServerSection, environment: Mapping[str, str] = os.environ) -> list[bytes]:
    """Return the keys that sign envelopes and stored programs: the first one signs, all of them verify.

    Replicas that share keys accept each other's envelopes.
    """
    if server.seal_keys:
        return [key.encode() for key in server.seal_keys]
    if server.keys:
        return [hashlib.blake2s(key.encode(), person=b"twseal").digest() for key in server.keys]
    return [_load_or_create_key(state_directory(environment) / "seal.key")]


def _load_or_create_key(path: Path) -> bytes:
    """Return the key in this file, creating it if needed, readable only by the user."""
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
        if len(key) >= 32:
            return key
    except (OSError, ValueError):
        pass
    new_key = secrets.token_bytes(32)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(new_key.hex() + "\n")
        temporary.replace(path)
    except OSError:
        pass  # it can't be saved: the key lasts as long as this process
    return new_key
