"""Trust in configuration files of folders, which may come from others.

A file that names providers, programs or MCP servers could send the user's keys elsewhere or run programs. It is used
once the user trusts it: a record in the user's state directory holds the digest of its bytes under the digest of its
path. After a change, and in another folder, it has to be trusted again.
"""

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from toolwire.codec.env_references import variable_name
from toolwire.gateway.config.errors import ConfigError, format_key, format_table
from toolwire.gateway.config.positions import KeyPath

TrustState = Literal["trusted", "changed", "unknown"]

_HARMLESS = frozenset(
    {
        *((name,) for name in ("limits", "models", "simulator")),
        ("server", "port"),
        ("policy", "ask"),
        ("policy", "deny"),
        ("tools", "hidden"),
        *(("browser", name) for name in ("width", "height", "scale", "headless")),
    }
)
"""Keys that need no trust. All others may choose who receives keys and prompts, run programs, or grant access.

Of `default_model` and `aliases`, those that replace nothing of the user's need none either: they lead only to the
user's own providers.
"""

_MAX_NAMED_KEYS = 5
_MAX_NAME = 60


class TrustRecords:
    """The records of trusted files, one for each path, in a directory that only the user can access."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "trusted"

    def state(self, path: Path, text: str) -> TrustState:
        """Return whether the user trusts this text at this path."""
        try:
            recorded = self._record(path).read_text(encoding="ascii").split()
        except (OSError, ValueError):
            return "unknown"
        return "trusted" if recorded[:1] == [_digest(text)] else "changed"

    def add(self, path: Path, text: str) -> None:
        """Trust this text at this path, instead of any earlier one."""
        record = self._record(path)
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = record.with_suffix(f".{secrets.token_hex(8)}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(f"{_digest(text)}\n")
            temporary.replace(record)
        except OSError as error:
            raise ConfigError(f"can't write to {self._directory}: {error.strerror}") from None

    def remove(self, path: Path) -> bool:
        """Forget the record of this path; return whether there was one."""
        try:
            self._record(path).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"can't write to {self._directory}: {error.strerror}") from None
        return True

    def _record(self, path: Path) -> Path:
        """Return the path of a record.

        A link is trusted under its own folder, not that of its target: relative paths in it mean other files there.
        """
        return self._directory / _digest(f"{os.path.realpath(path.parent)}\0{path.name}")


def _digest(text: str) -> str:
    """Return the SHA-256 digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def require_trust(
    path: Path, text: str, tree: Mapping[str, Any], user_tree: Mapping[str, Any], records: TrustRecords
) -> None:
    """Raise `ConfigError` for a file that needs trust and has none; `user_tree` is the user's own file."""
    keys = sensitive_keys(tree, user_tree)
    if not keys or (state := records.state(path, text)) == "trusted":
        return
    problem = "changed since you trusted it" if state == "changed" else "is not trusted"
    raise ConfigError(
        f"{path} {problem}. It sets {describe_keys(keys)}, and so could send your keys elsewhere or run programs. "
        "Read it, then run: toolwire config trust"
    )


def sensitive_keys(tree: Mapping[str, Any], user_tree: Mapping[str, Any]) -> list[KeyPath]:
    """Return the keys and tables of a file for which it needs trust; `user_tree` is the user's own file."""
    return [key for key in _sensitive_keys(tree, ()) if not _only_names_models(key, tree, user_tree)]


def _only_names_models(path: KeyPath, tree: Mapping[str, Any], user_tree: Mapping[str, Any]) -> bool:
    """Return whether a key is a default model or an alias that replaces nothing of the user's.

    An alias with a slash could replace a model of a provider.
    """
    match path:
        case ("default_model",):
            return "default_model" not in user_tree and variable_name(tree["default_model"]) is None
        case ("aliases", str() as alias):
            known, model = user_tree.get("aliases"), tree["aliases"][alias]
            is_new = "/" not in alias and not (isinstance(known, dict) and alias in known)
            return is_new and isinstance(model, str) and variable_name(model) is None
        case _:
            return False


def _sensitive_keys(tree: Mapping[str, Any], path: KeyPath) -> Iterator[KeyPath]:
    """Yield the sensitive keys of a table, descending into sections and `[mcp.servers]`."""
    for key, value in tree.items():
        key_path = (*path, key)
        if key_path in _HARMLESS:
            yield from _environment_references(value, key_path)
        elif isinstance(value, dict) and (not path or key_path == ("mcp", "servers")):
            yield from _sensitive_keys(value, key_path)
        else:
            yield key_path


def _environment_references(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    """Yield the path of each `env:NAME`, which could copy a secret to where others see it."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _environment_references(inner, (*path, key))
    elif variable_name(value) is not None:
        yield path


def describe_keys(keys: list[KeyPath]) -> str:
    """Return a short list of keys, without characters that control a terminal."""
    tables = ("providers", "hosts", "mcp")
    names = [format_table(key) if key[0] in tables else format_key(key) for key in keys]
    shown = [name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}..." for name in names[:_MAX_NAMED_KEYS]]
    if len(names) > _MAX_NAMED_KEYS:
        shown.append(f"{len(names) - _MAX_NAMED_KEYS} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
