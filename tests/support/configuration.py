"""The configuration of processes that tests start."""

from pathlib import Path


def named_config(folder: Path) -> dict[str, str]:
    """Return variables that name the folder's `toolwire.toml` if there is one, so that it needs no trust."""
    file = folder / "toolwire.toml"
    return {"TOOLWIRE_CONFIG": str(file)} if file.exists() else {}
