"""Translating from one protocol to another, with every loss named."""

import json
from collections.abc import AsyncIterable, Callable, Iterable
from functools import cached_property
from typing import Any, Literal

from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError, LossRefused
from toolwire.canonical.loss import Loss
from toolwire.canonical.response import Response
from toolwire.codec.answers import identified
from toolwire.codec.carries import Carrier
from toolwire.codec.carrying import carry_response
from toolwire.codec.hosts import OPENAI, PROFILES, HostProfile
from toolwire.codec.interface import Codec, Context, Encoding, Route, Target
from toolwire.codec.kin import set_apart
from toolwire.codec.placing import is_unplaced, placed
from toolwire.codec.raising import raise_response
from toolwire.codec.restoring import holds_carries, restore_carries
from toolwire.codec.settings import settled
from toolwire.protocols import PROTOCOLS

from .streaming import TranslatedStream, Translation

Body = bytes | bytearray | str | dict[str, Any] | list[Any]
Kind = Literal["request", "response", "error"]
HostedTools = Literal["drop", "function", "refuse"]


class Encoded:
    """A translated body: as plain JSON data, as bytes, with its losses and where it goes."""

    def __init__(self, encoding: Encoding, losses: Callable[[], list[Loss]]) -> None:
        self.route = encoding.route
        self._encoding = encoding
        self._losses = losses
        self._bytes: bytes | None = None

    @cached_property
    def losses(self) -> list[Loss]:
        """Each with its place in the source: found when it is asked for."""
        losses = self._losses()
        return placed(losses, self.value) if any(map(is_unplaced, losses)) else losses

    def to_bytes(self) -> bytes:
        if self._bytes is None:
            self._bytes = self._encoding.to_bytes()
        return self._bytes

    @property
    def value(self) -> Any:
        return json.loads(self.to_bytes())

    def __repr__(self) -> str:
        return f"Encoded({self.to_bytes().decode()}, losses={len(self.losses)})"


def translate(
    body: Body,
    source: str,
    target: str,
    kind: Kind = "request",
    *,
    request: Body | None = None,
    model: str | None = None,
    stream: bool | None = None,
    version: str | None = None,
    binary_results: Literal["native", "summary"] = "native",
    hosted_tools: HostedTools = "drop",
    site: str | None = None,
    title: str | None = None,
    carrier: Carrier | None = None,
    strict: bool = False,
    host: str = OPENAI.name,
) -> Encoded:
    """Translate one body.

    `request`, for a response: the request that it answers, as the client wrote it, in the target's protocol. It lets
    renamed, flattened and lowered tools be raised again; `hosted_tools` is then what it was sent with. `model` and
    `stream` are for protocols that keep them in the address, and override what the body says. `site` and `title` tell a
    provider that asks for them who is asking; they are headers of the route. `carrier` seals into an answer what its
    target has no place for, and opens it again in the next request. `strict` refuses any loss. `host` names the profile
    of the server that takes a Chat request, or that answered it: `generic` for one that is not OpenAI's own.
    """
    reader, writer = codec(source), codec(target)
    data = to_bytes(body, source)
    root: Any
    lost: list[Loss] = []
    match kind:
        case "request":
            root = reader.decode_request(data, Route(model=model, stream=stream))
            if holds_carries(root):
                asked = root
                root, missing = restore_carries(asked, reader, carrier, home=asked.origin == writer.name)
                lost = missing.resolve(asked, reader.names)
            options = Target(
                model=model,
                version=version,
                stream=stream,
                site=site,
                title=title,
                binary_results=binary_results,
                hosted_tools=hosted_tools,
                host=profile(host),
            )
            root = settled(set_apart(root, reader, writer), reader, writer)
            encoding = writer.encode_request(root, options)
        case "response":
            context = replace(answering(request, reader, writer, hosted_tools, profile(host)), carrier=carrier)
            root = answer_for(reader.decode_response(data, context), reader, writer, context)
            encoding = writer.encode_response(root, context)
        case "error":
            root = set_apart(reader.decode_error(data, None), reader, writer)
            encoding = writer.encode_error(root)
        case _:
            raise ValueError(f"kind is request, response or error, not {kind!r}")
    encoded = Encoded(encoding, lambda: lost + encoding.report.resolve(root, reader.names))
    if strict or encoding.report.guarded:
        refuse(encoded.losses, target, strict=strict)
    return encoded


def refuse(losses: list[Loss], target: str, *, strict: bool) -> None:
    if losses and (refused := losses if strict else [loss for loss in losses if loss.guarded]):
        raise LossRefused(refused, target)


def codec(name: str) -> Codec:
    try:
        return PROTOCOLS[name]
    except KeyError:
        raise ValueError(f"no protocol {name!r}: there are {', '.join(PROTOCOLS)}") from None


def profile(host: str) -> HostProfile:
    try:
        return PROFILES[host]
    except KeyError:
        raise ValueError(f"no host {host!r}: there are {', '.join(PROFILES)}") from None


def to_bytes(body: Body, protocol: str) -> bytes:
    """The body as JSON text. Integers of any size pass; what JSON can't say is the sender's fault."""
    try:
        if isinstance(body, (bytes, bytearray)):
            if not body.isascii():
                body.decode()
            return bytes(body)
        if isinstance(body, str):
            return body.encode()
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DecodeError(protocol, "", "JSON data", str(error)) from None


def answering(
    request: Body | None, reader: Codec, writer: Codec, hosted_tools: HostedTools = "drop", host: HostProfile = OPENAI
) -> Context:
    """What the answer to this request needs, when `reader` reads it from the provider and `writer` writes it."""
    if request is None:
        return Context()
    asked = writer.decode_request(to_bytes(request, writer.name), Route())
    undo = reader.encode_request(asked, Target(hosted_tools=hosted_tools, host=host)).undo
    if reader is not writer:
        undo.integers = asked
    return Context(request=asked, undo=undo)


def answer_for(response: Response, reader: Codec, writer: Codec, context: Context) -> Response:
    """An answer as `reader` read it, made ready for `writer`'s client: its calls have ids, its tools the client's
    names, and what its protocol has no place for is carried."""
    own = response if reader is writer else identified(set_apart(response, reader, writer), context)
    return carry_response(raise_response(own, context.undo, writer.screen, reader.names), writer, reader.names, context)


def translate_stream(
    chunks: Iterable[bytes] | AsyncIterable[bytes] | bytes,
    source: str,
    target: str,
    request: Body | None = None,
    *,
    hosted_tools: HostedTools = "drop",
    carrier: Carrier | None = None,
    host: str = OPENAI.name,
) -> TranslatedStream:
    """Translate a stream as it arrives, at any split. `request`, `hosted_tools`, `carrier` and `host` as in
    `translate`."""
    reader, writer = codec(source), codec(target)
    context = replace(answering(request, reader, writer, hosted_tools, profile(host)), carrier=carrier)
    translation = Translation(reader, writer, context)
    return TranslatedStream(translation, [chunks] if isinstance(chunks, bytes) else chunks)
