"""Configuration files: any text is a configuration or a `ConfigError`."""

from contextlib import suppress
from pathlib import Path

from tests.fuzz.engine import Target
from toolwire.gateway.config import ConfigError, parse_config

_SEED = Path(__file__).parent / "corpus" / "toolwire.toml"


def _check(data: bytes) -> None:
    with suppress(UnicodeDecodeError, ConfigError):
        parse_config(data.decode(), {"KEY": "sk-1234567890"})


def _seeds() -> list[bytes]:
    config = _SEED.read_bytes()
    return [config, *config.split(b"\n\n")]


TARGETS = [Target("config", _seeds, _check)]
