"""The recorded traffic beside the project, if present: real requests and responses."""

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.support.paths import SHARED, skip_without

CORPUS = SHARED / "corpus"
needs_recordings = skip_without("corpus")

# The corpus calls the body format `dialect`; these are the dialects that toolwire has a protocol for.
DIALECTS = {
    "anthropic": "anthropic",
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "gemini": "gemini",
    "ollama": "ollama",
}

# Official recordings are named after their dialect. Servers that imitate one have separate files, and so does
# OpenRouter, which imitates two and whose chat is a protocol here.
FILES = (*DIALECTS, "openai_compatible", "openrouter")

# Prefixes of response ids that only OpenRouter uses.
OPENROUTER_ID = re.compile(r'"id": ?"gen-')


@dataclass(frozen=True, slots=True)
class Recording:
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
        return self.status < 400 and not self.inband_error

    @property
    def wire(self) -> bytes:
        """Return the stream as bytes; empty if the exchange was not streamed."""
        return (self.sse or "").encode()


def is_present() -> bool:
    return CORPUS.is_dir()


def recordings(protocol: str, *, compatible: bool = False, kind: str | None = None) -> tuple[Recording, ...]:
    """Return every recorded exchange of a protocol, with the vendor or with servers that imitate it."""
    exchanges = _by_protocol(compatible).get(protocol, ())
    return exchanges if kind is None else tuple(exchange for exchange in exchanges if exchange.kind == kind)


@cache
def _by_protocol(compatible: bool) -> dict[str, tuple[Recording, ...]]:
    grouped: dict[str, list[Recording]] = {}
    for exchange in _all():
        if exchange.compatible == compatible:
            grouped.setdefault(exchange.protocol, []).append(exchange)
    return {protocol: tuple(exchanges) for protocol, exchanges in grouped.items()}


@cache
def _all() -> tuple[Recording, ...]:
    return tuple(
        _recording(line, *_protocol(line)) for name in FILES for line in _lines(name) if line["dialect"] in DIALECTS
    )


def _protocol(line: dict[str, Any]) -> tuple[str, bool]:
    """Return the protocol of an exchange and whether the server only imitates it.

    File names are sometimes wrong about it, so the shape of the response decides.
    """
    protocol = DIALECTS[line["dialect"]]
    body = line["response"] if isinstance(line["response"], dict) else {}
    if protocol == "ollama" and body.get("object") == "chat.completion":
        return "openai-chat", True  # its bridge to Chat, filed with its own API
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
