"""All targets, by module."""

from importlib import import_module

from tests.fuzz.engine import Target

MODULES = (
    "bodies",
    "streams",
    "fast_paths",
    "conversations",
    "call_arguments",
    "text_calls",
    "config",
    "envelopes",
    "provider_facts",
    "encodings",
    "event_streams",
    "http_client",
    "http_server",
    "websocket",
)


def all_targets() -> list[Target]:
    return [target for name in MODULES for target in import_module(f"tests.fuzz.{name}").TARGETS]
