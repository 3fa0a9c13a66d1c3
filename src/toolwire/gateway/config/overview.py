"""An overview of the configuration: its files, and every value with the file that sets it, without secrets."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolwire.codec.env_references import variable_name
from toolwire.codec.sensitive_data import find_credentials
from toolwire.gateway.config.document import Document, SourceText
from toolwire.gateway.config.errors import format_key
from toolwire.gateway.config.loading import ConfigFile, find_files
from toolwire.gateway.config.paths import state_directory
from toolwire.gateway.config.positions import KeyPath
from toolwire.gateway.config.providers import SECRET_NAME
from toolwire.gateway.config.reading import read_text
from toolwire.gateway.config.trust import TrustRecords, sensitive_keys

HIDDEN = "(hidden)"
_TRUST_STATES = {"trusted": "trusted", "changed": "changed since you trusted it", "unknown": "not trusted"}
_SECRET_TABLES = ("headers", "query", "env")
_PUBLIC_NAMES = ("key_share", "client_credential")
_SECRET_IN_ARGUMENT = re.compile(f"(?:{SECRET_NAME.pattern})[^=:]*[=:].", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"://[^/?#]*@|[?&][^=&]*(?:key|token|secret|password)[^=&]*=(?!\{|&|$)", re.IGNORECASE)


class FileState(Struct, frozen=True):
    """A file that commands read if it exists."""

    kind: str
    path: str
    state: str


class Setting(Struct, frozen=True):
    """A value of the configuration, and its origin."""

    key: str
    value: Any
    """The value as in the file, or `HIDDEN`."""
    file: str
    line: int
    kind: str
    """The kind of the file."""
    note: str = ""

    def __str__(self) -> str:
        value = self.value if self.value == HIDDEN else json.dumps(self.value, ensure_ascii=True)
        return f"{self.key} = {value}{self.note and f'  ({self.note})'}"


class Overview(Struct, frozen=True):
    """The files and the values that they set."""

    files: list[FileState]
    settings: list[Setting]


def inspect_config(named: Path | None = None, environment: Mapping[str, str] = os.environ) -> Overview:
    """Read the files, trusted or not, without using their values; raise `ConfigError` for one that can't be read."""
    states, sources, kinds = list[FileState](), list[tuple[SourceText, dict[str, Any]]](), dict[str, str]()
    for file in find_files(named, environment):
        name, state = str(file.path), "not present"
        if file.exists or file.kind == "named":
            source = SourceText(name, read_text(file.path, regular=file.kind != "named"))
            sources.append((source, source.parse()))
            state = _trust_state(file, *sources[-1], sources[0][1], environment)
        states.append(FileState(file.kind, name, state))
        kinds[name] = file.kind
    document = Document(sources)
    return Overview(states, list(_settings(document, kinds, environment)))


def _trust_state(
    file: ConfigFile,
    source: SourceText,
    tree: Mapping[str, Any],
    lower_tree: Mapping[str, Any],
    environment: Mapping[str, str],
) -> str:
    """Return whether a file is used and trusted, in words."""
    if file.kind != "project":
        return "used"
    if not sensitive_keys(tree, {} if lower_tree is tree else lower_tree):
        return "used, needs no trust"
    return _TRUST_STATES[TrustRecords(state_directory(environment)).state(file.path, source.text)]


def _settings(document: Document, kinds: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[Setting]:
    """Yield every value of a document, in order."""
    for path, value in _leaves(document.tree, ()):
        if (location := document.locate(path)) is not None:
            file, position = location
            variable = variable_name(value)
            note = "not set" if variable is not None and not environment.get(variable) else ""
            shown = HIDDEN if _is_secret(path, value) else value
            yield Setting(format_key(path), shown, file, position.line, kinds[file], note)


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every value that is neither a table nor an array of tables or secrets."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list) and any(isinstance(inner, dict) or variable_name(inner) for inner in value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path, value if isinstance(value, bool | int | float | str | list | dict) else str(value)


def _is_secret(path: KeyPath, value: Any) -> bool:
    """Return whether a value may be or contain a secret; the name of an environment variable is none."""
    if isinstance(value, list):
        return any(_is_secret(path, inner) for inner in value)
    if not isinstance(value, str) or variable_name(value) is not None:
        return False
    names = [part for part in path if isinstance(part, str)]
    if path[0] == "models" or names[-1] in _PUBLIC_NAMES:
        return False
    return bool(
        SECRET_NAME.search(names[-1])
        or any(name in _SECRET_TABLES for name in names[1:-1])
        or (names[-1] == "args" and SECRET_NAME.search(value))
        or (names[-1] == "command" and _SECRET_IN_ARGUMENT.search(value))
        or _SECRET_IN_URL.search(value)
        or find_credentials(value.encode())
    )
