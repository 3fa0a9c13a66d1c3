"""Configuration files: any text is a configuration, whose providers can be built, or a `ConfigError`."""

from contextlib import suppress
from pathlib import Path

from tests.fuzz.engine import Target
from tests.fuzz.mutations import TOKENS
from toolwire.gateway.config import ConfigError, parse_config
from toolwire.gateway.providers.discovery import configured_providers

_SEED = Path(__file__).parent / "corpus" / "toolwire.toml"


def _check(data: bytes) -> None:
    with suppress(UnicodeDecodeError, ConfigError):
        configured_providers(parse_config(data.decode(), {"KEY": "sk-1234567890"}))


def _seeds() -> list[bytes]:
    config = _SEED.read_bytes()
    return [config, *config.split(b"\n\n")]


_TOKENS = (*TOKENS, b' = ["x"]\n', b" = {}\n", b' = "x"\n', b" = 1\n", b"extends", b"protocol", b"[[", b"]]\n", b".")

TARGETS = [Target("config", _seeds, _check, _TOKENS)]
