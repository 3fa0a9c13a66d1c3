"""Finding and merging the configuration files of a command.

`--config` or `TOOLWIRE_CONFIG` names one file, which is used alone. Otherwise, the project's `toolwire.toml` takes
precedence over the user's file.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolwire.gateway.config.document import Document, SourceText
from toolwire.gateway.config.errors import ConfigError
from toolwire.gateway.config.paths import PROJECT_FILE, state_directory, user_file
from toolwire.gateway.config.reading import build_config, check_key_names, key_variables, read_text
from toolwire.gateway.config.sections import Config
from toolwire.gateway.config.trust import TrustRecords, require_trust

CONFIG_VARIABLE = "TOOLWIRE_CONFIG"
MODEL_VARIABLE = "TOOLWIRE_MODEL"

FileKind = Literal["named", "project", "user"]


class ConfigFile(Struct, frozen=True):
    """A configuration file that a command uses if it exists."""

    path: Path
    kind: FileKind

    @property
    def exists(self) -> bool:
        """Return whether there is such a file; a dangling link counts, so that it is reported."""
        return os.path.lexists(self.path)


class LoadedConfig(Struct, frozen=True):
    """The configuration of a command, and the files that it was read from."""

    config: Config = Config()
    files: tuple[ConfigFile, ...] = ()
    key_variables: dict[str, str] = {}
    """The environment variable of each provider's key."""
    document: Document = Document(())
    """The merged contents of the files, which knows the place of each key."""

    @property
    def folder_file(self) -> ConfigFile | None:
        """Return the named file, or the folder's; None if there is only the user-wide file."""
        return next((file for file in self.files if file.kind != "user"), None)

    @property
    def description(self) -> str:
        """Return the names of the files, those of higher precedence first."""
        return " over ".join(str(file.path) for file in reversed(self.files))


def find_files(
    named: Path | None, environment: Mapping[str, str] = os.environ, project: Path = PROJECT_FILE
) -> tuple[ConfigFile, ...]:
    """Return the files to read, those of lower precedence first; they may not exist."""
    if named is None and (variable := environment.get(CONFIG_VARIABLE)):
        named = Path(variable).expanduser()
    if named is not None:
        return (ConfigFile(named, "named"),)
    return ConfigFile(user_file(environment), "user"), ConfigFile(project, "project")


def load_config(
    named: Path | None = None, environment: Mapping[str, str] = os.environ, project: Path = PROJECT_FILE
) -> LoadedConfig:
    """Read and merge the configuration files; raise `ConfigError` if one is invalid or needs trust."""
    files = tuple(file for file in find_files(named, environment, project) if file.kind == "named" or file.exists)
    sources = list[tuple[SourceText, dict[str, object]]]()
    for file in files:
        user_tree = sources[0][1] if sources else {}
        sources.append(_read_source(file, user_tree, environment))
    document = Document(sources)
    config = build_config(document, environment)
    return LoadedConfig(config, files, key_variables(document.tree), document)


def _read_source(
    file: ConfigFile, user_tree: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[SourceText, dict[str, object]]:
    """Read a file once, so that the text that is checked is the text that is used."""
    try:
        source = SourceText(str(file.path), read_text(file.path, regular=file.kind != "named"))
    except ConfigError as error:
        if file.kind == "named" and str(file.path) == environment.get(CONFIG_VARIABLE):
            raise ConfigError(f"{CONFIG_VARIABLE}: {error}") from None
        raise
    tree = source.parse()
    if file.kind == "project":
        try:
            require_trust(file.path, source.text, tree, user_tree, TrustRecords(state_directory(environment)))
        except ConfigError:
            # Only keys that are known to be harmless need no trust. Report a misspelled key as such.
            check_key_names(Document([(source, tree)]))
            raise
    return source, tree
