"""Optional dependencies: the extra that provides a module, and the command that installs it here."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from toolwire.canonical.errors import ToolwireError

# Each module outside the default install, and its extra in pyproject.toml.
_EXTRAS = {
    "genai_prices": "prices",
    "html_to_markdown": "web",
    "httpx2": "web",
    "llguidance": "grammars",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "opentelemetry": "telemetry",
    "playwright": "browser",
    "psycopg": "postgres",
    "pydantic_monty": "code",
    "selectolax": "web",
}
EXTRAS = tuple(sorted(set(_EXTRAS.values())))


class MissingExtra(ToolwireError, ImportError):
    """A feature needs an extra that is not installed; the message has the command that installs it."""


def has_extra(extra: str) -> bool:
    """Return True if all modules of an extra are installed."""
    return all(find_spec(module) is not None for module, provider in _EXTRAS.items() if provider == extra)


@contextmanager
def require_extra(extra: str, feature: str) -> Iterator[None]:
    """Turn the failed import of an extra's module into `MissingExtra`, which names the feature that needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRAS:
            raise
        raise MissingExtra(missing_extra_message(extra, feature)) from error


def missing_extra_message(extra: str, feature: str) -> str:
    """Return the error for a feature whose extra is not installed."""
    return f"{feature} needs the extra `{extra}`: {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation: of a clone, pipx, `uv tool`, uvx or pip."""
    source = _direct_url()
    if source.get("dir_info", {}).get("editable"):
        pip = "uv pip" if find_spec("pip") is None else f"{shlex.quote(_relative_path(Path(sys.executable)))} -m pip"
        return f"{pip} install --editable {shlex.quote(f'{_relative_path(_local_path(source))}[{extra}]')}"
    requirement = shlex.quote(_requirement(source, extra))
    prefix = Path(sys.prefix)
    if _is_below(prefix, "uv", "tools"):
        return f"uv tool install {requirement}"
    if "archive-v0" in prefix.parts or _is_below(prefix, "uv", "environments-v2"):
        return f"uvx --from {requirement} toolwire"
    if _is_below(prefix, "pipx", "venvs"):
        return f"pipx install --force {requirement}"
    if find_spec("pip") is None:
        return f"uv pip install {requirement}"
    return f"pip install {requirement}"


def _direct_url() -> dict[str, Any]:
    """Return where toolwire was installed from, if not from an index (PEP 610); empty otherwise."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - slow to import

    try:
        text = distribution("toolwire").read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    return dict(msgspec.json.decode(text)) if text else {}


def _local_path(source: dict[str, Any]) -> Path:
    """Return the path of a local source."""
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415 - needed only for the message

    return Path(unquote(urlsplit(source["url"]).path))


def _requirement(source: dict[str, Any], extra: str) -> str:
    """Return the requirement of an extra: of the folder or the file that toolwire came from, if that still exists."""
    if "dir_info" in source and (path := _local_path(source)).is_dir():
        return f"{path}[{extra}]"
    if "archive_info" in source and source["url"].startswith("file:") and _local_path(source).is_file():
        return f"toolwire[{extra}] @ {source['url']}"
    return f"toolwire[{extra}]"


def _relative_path(path: Path) -> str:
    """Return a path below the current directory as relative, others unchanged."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _is_below(path: Path, parent: str, name: str) -> bool:
    """Return True if the path leads through the directory `name` of a directory `parent`."""
    return (parent, name) in zip(path.parts, path.parts[1:], strict=False)
