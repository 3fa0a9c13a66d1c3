"""Recorded traffic of real clients and providers, read from a folder beside the repository if it is present."""

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from tests.support.paths import ROOT

# The only folder outside the repository that tests read.
CORPUS = ROOT / ".." / "shared" / "corpus"
needs_recordings = pytest.mark.skipif(not CORPUS.exists(), reason="no folder of recorded traffic beside the repository")

# The protocol for each `dialect` of a recording.
DIALECTS = {
    "anthropic": "anthropic",
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "gemini": "gemini",
    "ollama": "ollama",
}

# Recordings of a vendor are in the file of its dialect. Compatible servers and OpenRouter have separate files.
FILES = (*DIALECTS, "openai_compatible", "openrouter")

# The prefix of response ids that only OpenRouter issues.
OPENROUTER_ID = re.compile(r'"id": ?"gen-')


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded exchange with a provider."""

    id: str
    protocol: str
    provider: str
    kind: str  # generate, count_tokens, compact or retrieve
    endpoint: str
    request_headers: Mapping[str, str]
    response_headers: Mapping[str, str]
    request: Any
    status: int
    response: Any  # None for streams
    sse: str | None
    framing: str | None
    stream: bool
    inband_error: bool
    features: frozenset[str]
    conversation: str | None
    turn: int | None
    parent: str | None
    reserialized: bool
    blob_shrunk: bool
    compatible: bool

    @property
    def accepted(self) -> bool:
        """Whether the provider accepted the request."""
        return self.status < 400 and not self.inband_error

    @property
    def wire(self) -> bytes:
        """The streamed response as bytes, empty if the exchange was not streamed."""
        return (self.sse or "").encode()


def is_present() -> bool:
    return CORPUS.is_dir()


def recordings(protocol: str, *, compatible: bool = False, kind: str | None = None) -> tuple[Recording, ...]:
    """Return the recorded exchanges of a protocol, with the vendor or with compatible servers."""
    exchanges = _by_protocol(compatible).get(protocol, ())
    return exchanges if kind is None else tuple(exchange for exchange in exchanges if exchange.kind == kind)


@cache
def _by_protocol(compatible: bool) -> dict[str, tuple[Recording, ...]]:
    grouped: dict[str, list[Recording]] = {}
    for exchange in all_recordings():
        if exchange.compatible == compatible:
            grouped.setdefault(exchange.protocol, []).append(exchange)
    return {protocol: tuple(exchanges) for protocol, exchanges in grouped.items()}


@cache
def all_recordings() -> tuple[Recording, ...]:
    return tuple(
        _recording(line, *_protocol(line)) for name in FILES for line in _lines(name) if line["dialect"] in DIALECTS
    )


def _protocol(line: dict[str, Any]) -> tuple[str, bool]:
    """Return the protocol of an exchange, and whether the server is only compatible with it.

    The response decides, because file names and labels are sometimes wrong.
    """
    protocol = DIALECTS[line["dialect"]]
    body = line["response"] if isinstance(line["response"], dict) else {}
    if protocol == "ollama" and body.get("object") == "chat.completion":
        return "openai-chat", True  # Ollama's endpoint for Chat Completions, filed with its native API
    if protocol == "openai-chat" and (line["provider"] == "openrouter" or OPENROUTER_ID.search(line["sse"] or "")):
        return "openrouter", False
    return protocol, line["protocol"] in ("openai_compatible", "openrouter")


def _lines(name: str) -> Iterator[dict[str, Any]]:
    path = CORPUS / f"{name}.jsonl.gz"
    if not path.is_file():
        return
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _recording(line: dict[str, Any], protocol: str, compatible: bool) -> Recording:
    headers = line.get("headers") or {}
    return Recording(
        id=line["id"],
        protocol=protocol,
        provider=line["provider"],
        kind=line["kind"],
        endpoint=line["endpoint"],
        request_headers=headers.get("request") or {},
        response_headers=headers.get("response") or {},
        request=line["request"],
        status=line["status"],
        response=line["response"],
        sse=line["sse"],
        framing=line["framing"],
        stream=line["stream"],
        inband_error=line.get("inband_error", False),
        features=frozenset(line["features"]),
        conversation=line["conversation"],
        turn=line["turn"],
        parent=line.get("parent"),
        reserialized=line.get("reserialised", False),
        blob_shrunk=line.get("blob_shrunk", False),
        compatible=compatible,
    )
