"""Translating from one protocol to another, with every loss named.

Where invented texts came to stand: that is known when the whole is written.
"""

import json
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Literal

from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError, LossyTranslationError
from toolwire.canonical.loss import Loss
from toolwire.canonical.response import Response
from toolwire.codec.encoding.fallbacks import apply_setting_changes
from toolwire.codec.envelope import EnvelopeKey
from toolwire.codec.host_profiles import OPENAI, PROFILES, HostProfile
from toolwire.codec.interface import Codec, EncodedBody, ResponseContext, Route, Target
from toolwire.codec.losses import UNLOCATED
from toolwire.codec.wire.reader import decode_json, escape_pointer
from toolwire.protocols import PROTOCOLS
from toolwire.translation.history import has_envelopes, restore_envelopes
from toolwire.translation.stages.call_ids import assign_call_ids
from toolwire.translation.stages.envelopes import embed_envelopes
from toolwire.translation.stages.family import isolate_foreign_extras
from toolwire.translation.stages.restore_calls import restore_calls
from toolwire.translation.stream import StreamTranslator, TranslatedStream


def is_unlocated(loss: Loss) -> bool:
    """Whether it is of an invented text that may stand anywhere."""
    return loss.target is not None and loss.target.startswith(UNLOCATED)


def locate_added_texts(losses: list[Loss], value: Any) -> list[Loss]:
    """Say of each invented text where it came to stand; the same ones are in the order of the conversation."""
    texts = {loss.target for loss in losses if loss.target is not None and is_unlocated(loss)}
    places = {text: _pointers_of(text.removeprefix(UNLOCATED), value, "") for text in texts}
    return [replace(loss, target=next(places[loss.target], "")) if loss.target in places else loss for loss in losses]


def _pointers_of(text: str, value: Any, path: str) -> Iterator[str]:
    if value == text:
        yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _pointers_of(text, inner, f"{path}/{escape_pointer(name)}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _pointers_of(text, inner, f"{path}/{index}")


Body = bytes | bytearray | str | dict[str, Any] | list[Any]
BodyKind = Literal["request", "response", "error"]
HostedTools = Literal["drop", "function", "refuse"]


class Translation:
    """A translated body: as plain JSON data, as bytes, with its losses and where it goes."""

    def __init__(self, encoded_body: EncodedBody, losses: Callable[[], list[Loss]]) -> None:
        self.route = encoded_body.route
        self._encoded_body = encoded_body
        self._losses = losses
        self._bytes: bytes | None = None

    @cached_property
    def losses(self) -> list[Loss]:
        """Each with its place in the source: found when it is asked for."""
        losses = self._losses()
        return locate_added_texts(losses, self.value) if any(map(is_unlocated, losses)) else losses

    def to_bytes(self) -> bytes:
        if self._bytes is None:
            self._bytes = self._encoded_body.to_bytes()
        return self._bytes

    @property
    def value(self) -> Any:
        try:
            return json.loads(self.to_bytes())
        except ValueError:  # an integer of more digits than Python converts
            return decode_json(self.to_bytes())

    def __repr__(self) -> str:
        return f"Translation({self.to_bytes().decode()}, losses={len(self.losses)})"


def translate(
    body: Body,
    source: str,
    target: str,
    kind: BodyKind = "request",
    *,
    request: Body | None = None,
    model: str | None = None,
    stream: bool | None = None,
    version: str | None = None,
    binary_results: Literal["native", "summary"] = "native",
    hosted_tools: HostedTools = "drop",
    site: str | None = None,
    title: str | None = None,
    envelope_key: EnvelopeKey | None = None,
    strict: bool = False,
    host: str = OPENAI.name,
) -> Translation:
    """Translate one body.

    `request`, for a response: the request that it answers, as the client wrote it, in the target's protocol. It lets
    renamed, flattened and lowered tools be raised again; `hosted_tools` is then what it was sent with. `model` and
    `stream` are for protocols that keep them in the address, and override what the body says. `site` and `title` tell a
    provider that asks for them who is asking; they are headers of the route. `carrier` seals into an answer what its
    target has no place for, and opens it again in the next request. `strict` refuses any loss. `host` names the profile
    of the server that takes a Chat request, or that answered it: `generic` for one that is not OpenAI's own.
    """
    reader, writer = get_codec(source), get_codec(target)
    data = body_bytes(body, source)
    root: Any
    lost: list[Loss] = []
    match kind:
        case "request":
            root = reader.decode_request(data, Route(model=model, stream=stream))
            if has_envelopes(root):
                asked = root
                root, missing = restore_envelopes(
                    asked, reader, envelope_key, same_protocol=asked.origin == writer.name
                )
                lost = missing.resolve(asked, reader.wire_names)
            options = Target(
                model=model,
                version=version,
                stream=stream,
                site=site,
                title=title,
                binary_results=binary_results,
                hosted_tools=hosted_tools,
                host=get_host_profile(host),
            )
            root = apply_setting_changes(isolate_foreign_extras(root, reader, writer), reader, writer)
            encoding = writer.encode_request(root, options)
        case "response":
            context = replace(
                response_context(request, reader, writer, hosted_tools, get_host_profile(host)),
                envelope_key=envelope_key,
            )
            root = adapt_response(reader.decode_response(data, context), reader, writer, context)
            encoding = writer.encode_response(root, context)
        case "error":
            root = isolate_foreign_extras(reader.decode_error(data, None), reader, writer)
            encoding = writer.encode_error(root)
        case _:
            raise ValueError(f"kind is request, response or error, not {kind!r}")
    encoded = Translation(encoding, lambda: lost + encoding.report.resolve(root, reader.wire_names))
    if strict or encoding.report.has_constraint:
        raise_for_losses(encoded.losses, target, strict=strict)
    return encoded


def raise_for_losses(losses: list[Loss], target: str, *, strict: bool) -> None:
    if losses and (refused := losses if strict else [loss for loss in losses if loss.constraint]):
        raise LossyTranslationError(refused, target)


def get_codec(name: str) -> Codec:
    try:
        return PROTOCOLS[name]
    except KeyError:
        raise ValueError(f"no protocol {name!r}: there are {', '.join(PROTOCOLS)}") from None


def get_host_profile(host: str) -> HostProfile:
    try:
        return PROFILES[host]
    except KeyError:
        raise ValueError(f"no host {host!r}: there are {', '.join(PROFILES)}") from None


def body_bytes(body: Body, protocol: str) -> bytes:
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


def response_context(
    request: Body | None, reader: Codec, writer: Codec, hosted_tools: HostedTools = "drop", host: HostProfile = OPENAI
) -> ResponseContext:
    """What the answer to this request needs, when `reader` reads it from the provider and `writer` writes it."""
    if request is None:
        return ResponseContext()
    asked = writer.decode_request(body_bytes(request, writer.name), Route())
    undo = reader.encode_request(asked, Target(hosted_tools=hosted_tools, host=host)).mapping
    if reader is not writer:
        undo.integer_schemas = asked
    return ResponseContext(request=asked, mapping=undo)


def adapt_response(response: Response, reader: Codec, writer: Codec, context: ResponseContext) -> Response:
    """An answer as `reader` read it, made ready for `writer`'s client: its calls have ids, its tools the client's
    names, and what its protocol has no place for is carried."""
    own = response if reader is writer else assign_call_ids(isolate_foreign_extras(response, reader, writer), context)
    return embed_envelopes(
        restore_calls(own, context.mapping, writer.computer_use, reader.wire_names), writer, reader.wire_names, context
    )


def translate_stream(
    chunks: Iterable[bytes] | AsyncIterable[bytes] | bytes,
    source: str,
    target: str,
    request: Body | None = None,
    *,
    hosted_tools: HostedTools = "drop",
    envelope_key: EnvelopeKey | None = None,
    host: str = OPENAI.name,
) -> TranslatedStream:
    """Translate a stream as it arrives, at any split. `request`, `hosted_tools`, `carrier` and `host` as in
    `translate`."""
    reader, writer = get_codec(source), get_codec(target)
    context = replace(
        response_context(request, reader, writer, hosted_tools, get_host_profile(host)), envelope_key=envelope_key
    )
    translation = StreamTranslator(reader, writer, context)
    return TranslatedStream(translation, [chunks] if isinstance(chunks, bytes) else chunks)
