"""Translate requests, responses and errors between protocols, with every loss reported."""

import gc
import json
from codecs import utf_8_decode
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from types import NoneType
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError, Loss, LossyTranslationError, Strictness, counted_losses
from toolwire.codec.envelope import EnvelopeKey
from toolwire.codec.hosts.openai import OPENAI
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.hosts.registry import CHAT, HOST_NAMES, profile_named
from toolwire.codec.interface import Codec, EncodedBody, ResponseContext, Route, Target, TextRecovery
from toolwire.codec.losses import UNLOCATED, LossReport
from toolwire.codec.options import require, require_choice, require_texts
from toolwire.codec.wire.reader import decode_json, escape_pointer
from toolwire.codec.wire.surrogates import decode_repaired
from toolwire.protocols import PROTOCOLS
from toolwire.translation.caching import with_caching
from toolwire.translation.history import has_envelopes, restore_envelopes
from toolwire.translation.pipeline import adapt_response
from toolwire.translation.request import adapt_request
from toolwire.translation.stages.family import isolate_foreign_extras
from toolwire.translation.stages.tool_call_parsers.registry import check_parser_names
from toolwire.translation.stages.tool_call_parsers.text_recovery import report_recovered
from toolwire.translation.stream import StreamTranslator, TranslatedStream


def is_unlocated(loss: Loss) -> bool:
    """Return whether a loss reports a text that the target added, but not yet the pointer to that text.

    Such a loss holds the added text itself in `target`, until `locate_added_texts` replaces it by a pointer.
    """
    return loss.target is not None and loss.target.startswith(UNLOCATED)


def locate_added_texts(losses: list[Loss], value: Any) -> list[Loss]:
    """Return the losses with the JSON pointer of each added text in the translated body `value`.

    Equal texts get their pointers in the order of the conversation.
    """
    texts = {loss.target for loss in losses if loss.target is not None and is_unlocated(loss)}
    pointers = {text: _pointers_of(text.removeprefix(UNLOCATED), value, "") for text in texts}
    return [
        replace(loss, target=next(pointers[loss.target], "")) if loss.target in pointers else loss for loss in losses
    ]


def _pointers_of(text: str, value: Any, pointer: str) -> Iterator[str]:
    """Yield the JSON pointers of all strings in `value` that equal the text; `pointer` is that of `value`."""
    if value == text:
        yield pointer
    elif isinstance(value, dict):
        for name, child in value.items():
            yield from _pointers_of(text, child, f"{pointer}/{escape_pointer(name)}")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _pointers_of(text, child, f"{pointer}/{index}")


Body = bytes | bytearray | str | dict[str, Any] | list[Any]
BodyKind = Literal["request", "response", "error"]
HostedTools = Literal["drop", "function", "refuse"]
Caching = Literal["auto", "off"]
_CHOICES: dict[str, tuple[str | bool | None, ...]] = {
    "strict": (False, True, "error"),
    "binary_results": ("native", "summary"),
    "hosted_tools": get_args(HostedTools),
    "cache": get_args(Caching),
    "stream": (None, True, False),
    "kind": get_args(BodyKind),
}
"""The values of options, by their names."""


class Translation:
    """A translated body, with its losses and the route to send it to."""

    def __init__(self, encoded_body: EncodedBody, losses: Callable[[], list[Loss]]) -> None:
        self.route = encoded_body.route
        self._encoded_body = encoded_body
        self._losses = losses
        self._bytes: bytes | None = None

    @cached_property
    def losses(self) -> list[Loss]:
        """Return the losses with JSON pointers into the source, resolved on first use."""
        losses = self._losses()
        return locate_added_texts(losses, self.value) if any(map(is_unlocated, losses)) else losses

    def to_bytes(self) -> bytes:
        """Return the body as JSON bytes."""
        if self._bytes is None:
            self._bytes = self._encoded_body.to_bytes()
        return self._bytes

    @property
    def value(self) -> Any:
        """Return the body as parsed JSON."""
        data = self.to_bytes()
        with suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(data)
        try:
            return json.loads(data)  # reads 1e400 as infinity
        except ValueError:  # an integer of more digits than Python converts
            return decode_json(data)

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
    strict: Strictness = False,
    host: str = OPENAI.name,
    tool_call_parser: str = "off",
    reasoning_parser: str = "off",
    cache: Caching = "off",
) -> Translation:
    """Translate one body from one protocol to another.

    Args:
        body: The body to translate, as JSON text or parsed JSON.
        source: The protocol of the body.
        target: The protocol to translate to.
        kind: Whether the body is a request, a response or an error.
        request: For a response: the client's request, in the target protocol, to restore renamed or flattened tools.
        model: The model, for protocols that keep it in the URL; overrides the body.
        stream: Whether to stream, for protocols that keep it in the URL; overrides the body.
        version: The version of the target's API.
        binary_results: Send binary tool results natively, or replace them by a summary line.
        hosted_tools: Drop, refuse or turn into functions hosted tools that the target lacks; the same for a response.
        site: The application's URL, for providers that ask for it in a header.
        title: The application's name, for providers that ask for it in a header.
        envelope_key: Seals data that the target cannot represent into a response, and opens it in the next request.
        strict: Raise `LossyTranslationError` for every loss but those of severity `info`, or with `"error"` for those
            of severity `error`. Dropped safety limits always raise it.
        host: The profile of the server, such as `deepseek`; `generic` for unknown Chat servers.
        tool_call_parser: For a response: the dialect of calls that the model wrote as text; `auto` for all, or `off`.
        reasoning_parser: The same for reasoning, as in `<think>`.
        cache: For a request: with `auto`, add the marks or the key that the target's prompt cache needs.

    """
    reader, writer = get_codec(source), get_codec(target)
    choices = {"strict": strict, "binary_results": binary_results, "cache": cache, "stream": stream, "kind": kind}
    _check_options(envelope_key, request if kind == "request" else None, hosted_tools=hosted_tools, **choices)
    require_texts(model=model, version=version, site=site, title=title)
    recovery, data = text_recovery(tool_call_parser, reasoning_parser, model), body_bytes(body, source)
    profile = get_host_profile(host, target if kind == "request" else source)
    match kind:
        case "request":
            options = Target(model=model, version=version, stream=stream, site=site, title=title, host=profile)
            options = replace(options, binary_results=binary_results, hosted_tools=hosted_tools)
            encoded_body, losses = _translate_request(data, reader, writer, options, envelope_key, cache=cache)
        case "response":
            context = response_context(request, reader, writer, hosted_tools, profile, recovery=recovery)
            encoded_body, losses = _translate_response(data, reader, writer, context, envelope_key)
        case "error":
            encoded_body, losses = _translate_error(data, reader, writer)
    translation = Translation(encoded_body, losses)
    if strict or encoded_body.report.has_constraint:
        raise_for_losses(translation.losses, target, strict=strict)
    return translation


def _check_options(envelope_key: object, superfluous_request: object = None, **choices: object) -> None:
    """Raise `ValueError` for an option whose value is not one of its choices, and `TypeError` for another type.

    The error for a key leaves it out, since it may be a secret.
    """
    for option, value in choices.items():
        require_choice(option, value, _CHOICES[option])
    if envelope_key is not None and not isinstance(envelope_key, EnvelopeKey):
        kind = type(envelope_key).__name__
        raise TypeError(f"envelope_key is {kind}: use toolwire.codec.envelope.EnvelopeKey([secret]), a secret as bytes")
    if superfluous_request is not None:
        raise TypeError("request=... is for kind='response': the request to translate is the first argument")


_EncodedWithLosses = tuple[EncodedBody, Callable[[], list[Loss]]]
"""A body in the target protocol, and a function that resolves its losses when they are asked for."""


def _translate_request(
    data: bytes,
    reader: Codec,
    writer: Codec,
    options: Target,
    envelope_key: EnvelopeKey | None,
    *,
    cache: Caching,
) -> _EncodedWithLosses:
    """Translate the JSON bytes of a request, and open the envelopes that the client echoed in its history."""
    route = Route(model=options.model, stream=options.stream)
    request, _, losses = decode_repaired(lambda body: reader.decode_request(body, route), data, "request")
    if has_envelopes(request):
        received = request
        request, restore_report = restore_envelopes(
            received, reader, envelope_key, same_protocol=received.origin == writer.name
        )
        losses += restore_report.resolve(received, reader.wire_names)
    report = LossReport()
    adapted = adapt_request(request, reader, writer, options.host, report)
    if report:
        losses += report.resolve(request, reader.wire_names)
    if cache == "auto":
        options = with_caching(options, request, reader, writer)
    encoded_body = writer.encode_request(adapted, options)
    return encoded_body, lambda: losses + encoded_body.report.resolve(adapted, reader.wire_names)


def _translate_response(
    data: bytes, reader: Codec, writer: Codec, context: ResponseContext, envelope_key: EnvelopeKey | None
) -> _EncodedWithLosses:
    """Translate the JSON bytes of a complete response, and seal data that the target can't represent in envelopes."""
    context = replace(context, envelope_key=envelope_key)
    response = adapt_response(reader.decode_response(data, context), reader, writer, context)
    encoded_body = writer.encode_response(response, context)
    if context.text_recovery is not None:
        report_recovered(response, encoded_body.report)
    return encoded_body, lambda: encoded_body.report.resolve(response, reader.wire_names)


def _translate_error(data: bytes, reader: Codec, writer: Codec) -> _EncodedWithLosses:
    """Translate the JSON bytes of an error body."""
    error = isolate_foreign_extras(reader.decode_error(data, None), reader, writer)
    encoded_body = writer.encode_error(error)
    return encoded_body, lambda: encoded_body.report.resolve(error, reader.wire_names)


def raise_for_losses(losses: list[Loss], target: str, *, strict: Strictness) -> None:
    """Raise `LossyTranslationError` for the losses that this strictness refuses, and for dropped constraints."""
    if refused := refused_losses(losses, strict=strict):
        raise LossyTranslationError(refused, target, losses)


def refused_losses(losses: list[Loss], *, strict: Strictness) -> list[Loss]:
    """Return the losses that this strictness refuses; dropped constraints (safety limits) are always among them."""
    if strict == "error":
        return [loss for loss in losses if loss.severity == "error"]
    return counted_losses(losses) if strict else [loss for loss in losses if loss.constraint]


def get_codec(name: str) -> Codec:
    """Return the codec of a protocol by its name; raise `ValueError` if there is none."""
    try:
        return PROTOCOLS[name]
    except (KeyError, TypeError):  # a list is no key
        raise ValueError(f"unknown protocol {name!r}; expected one of {', '.join(PROTOCOLS)}") from None


def get_host_profile(host: str, protocol: str = CHAT) -> HostProfile:
    """Return the profile of a server by its name and protocol; raise `ValueError` if there is none."""
    try:
        return profile_named(host, protocol)
    except (KeyError, TypeError):  # a list is no key
        raise ValueError(f"unknown host profile {host!r}; expected one of {', '.join(HOST_NAMES)}") from None


def body_bytes(body: Body, protocol: str) -> bytes:
    """Return the body as JSON bytes; raise `DecodeError` for values that JSON cannot express."""
    try:
        if isinstance(body, (bytes, bytearray)):
            if not body.isascii():
                _check_utf8(body)
            return bytes(body)
        if isinstance(body, str):
            return body.encode()
        if (data := _encode_builtin_types(body)) is not None:
            return data
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # Escapes keep lone surrogates, which UTF-8 lacks.
        return text.encode() if _is_utf8(text) else json.dumps(body, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DecodeError(protocol, "", "JSON data", str(error)) from None


def _check_utf8(body: bytes | bytearray) -> None:
    """Raise `UnicodeDecodeError` if a body is not UTF-8.

    A large body is decoded in steps: the text of all of it could take four times its size, in memory to be mapped.
    """
    if len(body) > _DECODED_STEP:
        view, start = memoryview(body), 0
        with suppress(UnicodeDecodeError):  # the offset would be relative to the step
            while start < len(body):
                is_last = start + _DECODED_STEP >= len(body)
                start += utf_8_decode(view[start : start + _DECODED_STEP], "strict", is_last)[1]
            return
    body.decode()


_DECODED_STEP = 32 * 1024


def _is_utf8(text: str) -> bool:
    """Return whether UTF-8 can encode the text: it has no lone surrogate."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


_JSON_TYPES = frozenset({dict, list, tuple, str, int, float, bool, NoneType})


def _encode_builtin_types(value: Any) -> bytes | None:
    """Encode JSON data with msgspec, many times as fast as `json`; None if the result could differ.

    msgspec also accepts bytes, sets and dates, writes NaN as null, and spells exponents differently.
    """
    try:
        data = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return None
    level: list[Any] = [value]
    while level:  # level by level in C; there is no cycle, or the encoder would have failed
        types = set(map(type, level))
        if not types <= _JSON_TYPES:
            return None
        if float in types and not all(_is_spelled_without_exponent(item) for item in level if type(item) is float):
            return None
        level = gc.get_referents(*level)
    return data


def _is_spelled_without_exponent(number: float) -> bool:
    """Return whether Python writes a number without an exponent; False for NaN and infinity."""
    return number == 0 or 1e-4 <= abs(number) < 1e16


def response_context(
    request: Body | None,
    reader: Codec,
    writer: Codec,
    hosted_tools: HostedTools = "drop",
    host: HostProfile = OPENAI,
    *,
    recovery: TextRecovery | None = None,
) -> ResponseContext:
    """Return the context for a response to this request, decoded by `reader` and encoded by `writer`."""
    if request is None:
        return ResponseContext(text_recovery=recovery)
    decoded = writer.decode_request(body_bytes(request, writer.name), Route())
    mapping = reader.encode_request(decoded, Target(hosted_tools=hosted_tools, host=host)).mapping
    if reader is not writer:
        mapping.integer_schemas = decoded
    return ResponseContext(request=decoded, mapping=mapping, text_recovery=recovery)


def text_recovery(tool_call_parser: str, reasoning_parser: str, model: str | None) -> TextRecovery | None:
    """Return the settings of these parsers; None if both are off. Raise an error for an unknown name."""
    require_texts(tool_call_parser=tool_call_parser, reasoning_parser=reasoning_parser)
    return _text_recovery(tool_call_parser, reasoning_parser, model)


@lru_cache(maxsize=256)
def _text_recovery(tool_call_parser: str, reasoning_parser: str, model: str | None) -> TextRecovery | None:
    """Return the settings of these parsers; None if both are off. Raise `ValueError` for an unknown name."""
    check_parser_names(tool_call_parser, reasoning_parser)
    if tool_call_parser == reasoning_parser == "off":
        return None
    return TextRecovery(tool_calls=tool_call_parser, reasoning=reasoning_parser, model=model)


def translate_stream(
    chunks: Iterable[bytes] | AsyncIterable[bytes] | bytes,
    source: str,
    target: str,
    request: Body | None = None,
    *,
    hosted_tools: HostedTools = "drop",
    envelope_key: EnvelopeKey | None = None,
    host: str = OPENAI.name,
    model: str | None = None,
    tool_call_parser: str = "off",
    reasoning_parser: str = "off",
) -> TranslatedStream:
    """Translate a stream of bytes, cut anywhere, as it arrives.

    The other parameters are the same as in `translate`.
    """
    reader, writer = get_codec(source), get_codec(target)
    _check_options(envelope_key, hosted_tools=hosted_tools)
    require_texts(model=model)
    require("chunks", chunks, "bytes, or an iterable of bytes", valid=not isinstance(chunks, str))
    recovery = text_recovery(tool_call_parser, reasoning_parser, model)
    context = response_context(request, reader, writer, hosted_tools, get_host_profile(host, source), recovery=recovery)
    context = replace(context, envelope_key=envelope_key)
    translator = StreamTranslator(reader, writer, context)
    return TranslatedStream(translator, [chunks] if isinstance(chunks, bytes) else chunks)
