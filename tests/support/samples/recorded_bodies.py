"""Bodies for the laws: always the fixtures, and the recorded corpus if it is present."""

import json
import os
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.support.samples import corpus
from tests.support.samples.repeats import repeated_recordings
from toolwire.protocols import PROTOCOLS

FIXTURES = Path(__file__).parents[2] / "fixtures"

PROTOCOL_NAMES = tuple(PROTOCOLS)
NON_PROVIDER_RECORDING = "test_openai/test_invalid_response#0"
"""A recording of a response from a URL that is no provider; its body has no protocol."""

PAIRS = list(permutations(PROTOCOL_NAMES, 2))
WHOLE_CORPUS = bool(os.environ.get("TOOLWIRE_WHOLE_CORPUS"))
"""`make test-laws` sets this to try every recording with every target; otherwise each gets some of the targets."""


def example_count(thorough: int) -> int:
    """Return how many examples Hypothesis tries: this many in `make test-laws`, a third of it otherwise."""
    return thorough if WHOLE_CORPUS else max(20, thorough // 3)


def is_sampled(name: str, target: str, *, one_in: int = 3) -> bool:
    """Return whether a recording or path is tried with this target; over all targets, each is tried."""
    return is_selected(name, PROTOCOL_NAMES.index(target), one_in=one_in)


def is_selected(name: str, number: int, *, one_in: int) -> bool:
    """Return whether a name is tried with the variant of this number."""
    return WHOLE_CORPUS or (crc32(name.encode()) + number) % one_in == 0


def sample_for_target(samples: dict[str, Any], target: str, *, one_in: int = 3) -> dict[str, Any]:
    """Return all fixtures, and the recordings that are selected for this target.

    A recording that repeats earlier ones is selected for one of the targets, any other for one in so many.
    """
    repeats = repeated_recordings()
    return {
        name: body
        for name, body in samples.items()
        if "#" not in name or is_sampled(name, target, one_in=len(PROTOCOL_NAMES) if name in repeats else one_in)
    }


@cache
def requests(protocol: str) -> dict[str, Any]:
    """Return requests that a provider accepts, by name."""
    return _bodies(protocol, "requests") | {
        exchange.id: exchange.request for exchange in _recordings(protocol) if isinstance(exchange.request, dict)
    }


@cache
def responses(protocol: str) -> dict[str, Any]:
    return _bodies(protocol, "responses") | {
        exchange.id: exchange.response
        for exchange in _recordings(protocol)
        if isinstance(exchange.response, dict) and exchange.status < 400
    }


@cache
def errors(protocol: str) -> dict[str, Any]:
    return _bodies(protocol, "errors") | {
        exchange.id: exchange.response
        for exchange in _recordings(protocol)
        if isinstance(exchange.response, dict) and exchange.status >= 400
    }


@cache
def streams(protocol: str) -> dict[str, bytes]:
    return fixture_streams(protocol) | {
        exchange.id: exchange.wire for exchange in _recordings(protocol) if exchange.sse
    }


@cache
def _bodies(protocol: str, kind: str) -> dict[str, Any]:
    folder = FIXTURES / protocol.replace("-", "_") / kind
    return {path.stem: json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))}


def _recordings(protocol: str) -> list[corpus.Recording]:
    return [
        exchange
        for compatible in (False, True)
        for exchange in corpus.recordings(protocol, compatible=compatible, kind="generate")
        if not exchange.id.endswith(NON_PROVIDER_RECORDING)
    ]


def address_options(source: str, kind: str) -> dict[str, Any]:
    """Return the options that a protocol has in the URL instead of the body."""
    return {"model": "gemini-3-pro"} if source == "gemini" and kind == "request" else {}


def fixture_requests(protocol: str) -> dict[str, Any]:
    """Return the fixtures only, which are small enough to test every leaf."""
    return _bodies(protocol, "requests")


def fixture_responses(protocol: str) -> dict[str, Any]:
    return _bodies(protocol, "responses")


def fixture_errors(protocol: str) -> dict[str, Any]:
    return _bodies(protocol, "errors")


@cache
def fixture_streams(protocol: str) -> dict[str, bytes]:
    folder = FIXTURES / protocol.replace("-", "_") / "streams"
    return {path.stem: path.read_bytes() for path in sorted(folder.iterdir())}
