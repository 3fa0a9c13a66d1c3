"""Bodies of every protocol: decoded, encoded again, translated and checked."""

import json
from typing import Any

import toolwire as tw
from tests.fuzz.engine import Target
from tests.support.samples.fixture_files import PROTOCOLS, fixtures

_KINDS = {"request": "requests", "response": "responses", "error": "errors"}


def _check(protocol: str, kind: Any) -> Any:
    def check(data: bytes) -> None:
        rejection: tw.DecodeError | None = None
        for target in PROTOCOLS:
            try:
                translation = tw.translate(data, protocol, target, kind)
                json.loads(translation.to_bytes())
                losses = translation.losses
            except tw.DecodeError as error:
                rejection = error
                break
            except tw.LossyTranslationError as error:
                losses = error.losses
                if target == protocol or not losses:
                    raise
            assert all(map(_is_pointer, [loss.path for loss in losses])), losses
        if rejection is not None:
            assert rejection.protocol == protocol, rejection
            assert _is_pointer(rejection.path), rejection
        elif kind == "request":
            tw.check(data, protocol)
        elif kind == "response":
            tw.parse_tool_calls(data, protocol)

    return check


def _is_pointer(path: str) -> bool:
    return path == "" or path.startswith("/")


def _seeds(protocol: str, kind: str) -> Any:
    return lambda: [json.dumps(body).encode() for _, body in fixtures(protocol, _KINDS[kind])]


TARGETS = [
    Target(f"{kind}-{protocol}", _seeds(protocol, kind), _check(protocol, kind))
    for protocol in PROTOCOLS
    for kind in _KINDS
]
