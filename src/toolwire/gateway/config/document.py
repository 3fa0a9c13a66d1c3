"""Documents: the parsed text of configuration files, merged, with the origin of each key."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from toolwire.codec.env_references import ENV_PREFIX, variable_name
from toolwire.gateway.config.errors import ConfigError, KeyProblem
from toolwire.gateway.config.positions import MAX_DEPTH, KeyPath, KeyPositions, Position

_MERGED_TABLES = frozenset(
    {
        (),
        *((name,) for name in ("aliases", "browser", "compaction", "hosts", "journal", "limits", "mcp")),
        *((name,) for name in ("models", "policy", "providers", "server", "simulator", "state", "tools")),
        ("mcp", "servers"),
    }
)
"""Tables that are merged key by key. Any other is replaced as one piece, so that no key is sent to another address."""

_JOINED_ARRAYS = frozenset(
    {("routes",), ("policy", "allow"), ("policy", "ask"), ("policy", "deny"), ("tools", "hidden")}
)
"""Arrays to which a file adds. It can't remove what the user's own file denies or hides."""

_OPTIONAL_TABLES = frozenset({"providers", "mcp", "search"})
"""Sections that commands can do without: a variable missing there must not stop all of them."""

_SYNTAX_ERROR = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


class SourceText:
    """The text of one file, with the name to print for it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    @cached_property
    def positions(self) -> KeyPositions:
        """Return the positions of its keys."""
        return KeyPositions(self.text)

    def parse(self) -> dict[str, Any]:
        """Parse the text; raise `ConfigError` with the position of a syntax error."""
        try:
            tree = tomllib.loads(self.text)
            _check_depth(tree)
        except RecursionError:
            raise ConfigError(f"{self.name}: nested too deeply") from None
        except (tomllib.TOMLDecodeError, ValueError) as error:  # also an integer with too many digits
            match = _SYNTAX_ERROR.fullmatch(str(error))
            problem, line, column = match.groups() if match else (str(error), None, None)
            line = line or self.text.count("\n") + 1
            where = f"{self.name}:{line}:{column}" if column else f"{self.name}:{line}"
            raise ConfigError(f"{where}: {problem[:1].lower()}{problem[1:]}") from None
        return tree


def _check_depth(tree: dict[str, Any]) -> None:
    """Raise `RecursionError` if the document has more than `MAX_DEPTH` levels."""
    level: list[Any] = [tree]
    for _ in range(MAX_DEPTH):
        tables = [value.values() if isinstance(value, dict) else value for value in level]
        level = [inner for table in tables for inner in table if isinstance(inner, dict | list)]
        if not level:
            return
    raise RecursionError


class Document:
    """The merged contents of files."""

    def __init__(self, sources: Iterable[tuple[SourceText, dict[str, Any]]]) -> None:
        """Merge parsed files; each one takes precedence over those before it."""
        self.tree: dict[str, Any] = {}
        self._origins: dict[KeyPath, tuple[SourceText, KeyPath]] = {}
        for source, tree in sources:
            self._merge(self.tree, tree, (), source)

    def origin(self, path: KeyPath) -> tuple[SourceText, KeyPath] | None:
        """Return the file that a key comes from, and its path there."""
        for length in range(len(path), 0, -1):
            if (origin := self._origins.get(path[:length])) is not None:
                source, prefix = origin
                return source, (*prefix, *path[length:])
        return None

    def locate(self, path: KeyPath, *, value: bool = False) -> tuple[str, Position] | None:
        """Return the name of the file and the position of a key or its value."""
        if (origin := self.origin(path)) is None:
            return None
        source, source_path = origin
        return source.name, source.positions.locate(source_path, value=value)

    def error(self, problem: KeyProblem) -> ConfigError:
        """Return the error for a problem, with the file and the position."""
        if (location := self.locate(problem.path, value=not problem.at_key)) is None:
            return ConfigError(str(problem))
        name, position = location
        return ConfigError(f"{name}:{position.line}:{position.column}: {problem}")

    def sort_key(self, problem: KeyProblem) -> tuple[str, Position]:
        """Return the file and position of a problem, to sort problems by."""
        return self.locate(problem.path) or ("", Position(1, 1))

    def _merge(self, low: dict[str, Any], high: Mapping[str, Any], path: KeyPath, source: SourceText) -> None:
        """Merge a table of higher precedence into one of the tree."""
        for key, value in high.items():
            key_path = (*path, key)
            known = low.get(key)
            if key_path in _MERGED_TABLES and isinstance(value, dict) and isinstance(known, dict):
                self._merge(known, value, key_path, source)
            elif key_path in _MERGED_TABLES and isinstance(value, dict):
                low[key] = {}
                self._forget_origins(key_path)
                self._origins[key_path] = source, key_path
                self._merge(low[key], value, key_path, source)
            elif key_path in _JOINED_ARRAYS and isinstance(value, list) and isinstance(known, list):
                moved = [self.origin((*key_path, index)) for index in range(len(known))]
                self._forget_origins(key_path)
                low[key] = [*value, *known]
                self._origins[key_path] = source, key_path
                for index, origin in enumerate(moved, len(value)):
                    if origin is not None:
                        self._origins[(*key_path, index)] = origin
            else:
                self._forget_origins(key_path)
                low[key] = value
                self._origins[key_path] = source, key_path

    def _forget_origins(self, path: KeyPath) -> None:
        """Forget the origins of a key and everything in it."""
        for known in [known for known in self._origins if known[: len(path)] == path]:
            del self._origins[known]


def resolve_environment(value: Any, environment: Mapping[str, str], path: KeyPath = ()) -> Any:
    """Return the value with each `env:NAME` in it replaced by that environment variable.

    Of providers, MCP servers and the search service, a reference to a variable that is not set is left: only what
    needs it fails. Elsewhere, raise `KeyProblem`.
    """
    if isinstance(value, dict):
        return {key: resolve_environment(inner, environment, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [resolve_environment(inner, environment, (*path, index)) for index, inner in enumerate(value)]
    if (name := variable_name(value)) is None:
        return value
    variable = environment.get(name)
    if variable and variable.startswith(ENV_PREFIX):
        raise KeyProblem(path, f"environment variable {name} refers to another variable")
    if variable:
        return variable
    if path[0] in _OPTIONAL_TABLES:
        return value
    raise KeyProblem(path, f"environment variable {name} is not set")
