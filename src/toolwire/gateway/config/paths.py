"""Paths of the user's files: configuration, state and journal."""

from collections.abc import Mapping
from pathlib import Path

from toolwire.gateway.config.sections import Config

PROJECT_FILE = Path("toolwire.toml")
"""The configuration of the folder in which a command is started."""


def user_file(environment: Mapping[str, str]) -> Path:
    """Return the user-wide file: `$XDG_CONFIG_HOME/toolwire/config.toml` or `~/.config/toolwire/config.toml`."""
    return _base_directory(environment, "XDG_CONFIG_HOME", ".config") / "toolwire" / "config.toml"


def state_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory for state files: `$XDG_STATE_HOME/toolwire` or `~/.local/state/toolwire`."""
    return _base_directory(environment, "XDG_STATE_HOME", ".local/state") / "toolwire"


def journal_path(config: Config, environment: Mapping[str, str]) -> Path:
    """Return the path of the journal's database."""
    path = config.journal.path
    return state_directory(environment) / "journal.db" if path is None else Path(path).expanduser()


def journal_location(config: Config, environment: Mapping[str, str]) -> Path | str:
    """Return where exchanges are recorded: a file, or the URL of the database that gateways share."""
    is_shared = config.journal.path is None and config.state.url is not None
    return config.state.url or "" if is_shared else journal_path(config, environment)


def runs_location(config: Config, environment: Mapping[str, str]) -> Path | str:
    """Return where runs are recorded: a file beside the journal, or the URL of the shared database."""
    return config.state.url or journal_path(config, environment).with_name("runs.db")


def _base_directory(environment: Mapping[str, str], variable: str, default: str) -> Path:
    """Return a base directory of the XDG specification, in which a relative path is invalid."""
    path = Path(environment.get(variable) or "")
    return path if path.is_absolute() else Path(environment.get("HOME", "~")).expanduser() / default
