"""The keys that carries are sealed with: configured, or derived from the server's keys, or made once and kept."""

import hashlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from toolwire.gateway.config import ServerSection, state_directory


def load_signing_keys(server: ServerSection, environment: Mapping[str, str] = os.environ) -> list[bytes]:
    """The first one seals, all of them open: replicas that share keys share carries."""
    if server.seal_keys:
        return [key.encode() for key in server.seal_keys]
    if server.keys:
        return [hashlib.blake2s(key.encode(), person=b"twseal").digest() for key in server.keys]
    return [_load_or_create_key(state_directory(environment) / "seal.key")]


def _load_or_create_key(path: Path) -> bytes:
    """The key in this file, which is made if it is not there; only the user may read it."""
    try:
        kept = bytes.fromhex(path.read_text(encoding="ascii").strip())
        if len(kept) >= 32:
            return kept
    except (OSError, ValueError):
        pass
    made = secrets.token_bytes(32)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(made.hex() + "\n")
        fresh.replace(path)
    except OSError:
        pass  # nowhere to keep it: it lives as long as this process
    return made
