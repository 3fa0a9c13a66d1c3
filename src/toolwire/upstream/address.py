"""Requests and responses of cloud platforms, which serve a vendor's protocol at other paths and with another frame.

Everything above the transport works with the vendor's protocol: requests are addressed just before they are sent, and
streams and errors are converted as they arrive.
"""

import base64
import binascii
import re
from fnmatch import fnmatchcase
from string import Formatter
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from toolwire.codec.aws_framing import EventMessage, EventStreamSplitter, FramingError
from toolwire.codec.framing import encode_sse_frame
from toolwire.codec.hosts.profile import AddressFacts, HostProfile
from toolwire.codec.interface import Route
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import UpstreamResponse

EVENT_STREAM_TYPE = "application/vnd.amazon.eventstream"
BETA_HEADER = "anthropic-beta"

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class UnaddressableRequest(ValueError):
    """A request that the platform has no path for."""


class AddressedRequest(Struct, frozen=True):
    """A request in the form of its platform."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class InvalidAddress(ValueError):
    """A provider setting that is missing, invalid or not supported by its host; the message begins with its name."""


def resolve_base_url(host: HostProfile | None, base_url: str, region: str | None, project: str | None) -> str:
    """Return the base URL of a provider: the configured one, or that of its platform in the region.

    Raises `InvalidAddress` if a setting is missing or invalid.
    """
    settings = {"region": region, "project": project}
    address = AddressFacts() if host is None else host.address
    required = _placeholders(address.path)
    if not base_url:
        required |= _placeholders(*address.base_urls.values())
    for name, value in settings.items():
        if value is None and name in required:
            raise InvalidAddress(f"{name}: required for the host {host.name if host else ''}")
        if value is not None and not address.path:
            raise InvalidAddress(f"{name}: only cloud platforms have one; set host to bedrock or vertex")
        if value is not None and not _SYNTAX[name].fullmatch(value):
            raise InvalidAddress(f"{name}: invalid {name} {value!r}")
    for pattern, template in address.base_urls.items():
        if not base_url and fnmatchcase(region or "", pattern):
            return template.format(region=region)
    if not base_url:
        raise InvalidAddress("base_url: required unless the host is a cloud platform")
    return base_url


def _placeholders(*templates: str) -> set[str]:
    """Return the names in braces of templates."""
    return {name for template in templates for _, name, _, _ in Formatter().parse(template) if name}


_SYNTAX = {"region": re.compile(r"[a-z0-9][a-z0-9-]*"), "project": re.compile(r"[a-z0-9][a-z0-9.:-]*")}
"""By setting. A region is a part of a host name; a project ID may have a domain prefix (`example.com:project`)."""


def address_request(provider: Provider, address: AddressFacts, route: Route, body: bytes) -> AddressedRequest:
    """Return a request of the vendor's protocol in the form of the provider's platform."""
    members = _decode_members(body)
    model = route.model or _decode_string(members.get("model"))
    is_stream = bool(route.stream) or members.get("stream") == Raw(b"true")
    path = _fill_path(address.stream_path if is_stream else address.path, provider, model)
    for name in address.moved:
        members.pop(name, None)
    if not address.cache_control and (mark := members.pop("cache_control", None)) is not None:
        members["messages"] = _mark_last_block(members.get("messages", Raw(b"[]")), mark)
    headers = dict(route.headers)
    if address.version:
        members = {"anthropic_version": Raw(msgspec.json.encode(address.version)), **members}
    if address.beta_member and (betas := headers.pop(BETA_HEADER, "")):
        members[address.beta_member] = Raw(msgspec.json.encode([name.strip() for name in betas.split(",")]))
    return AddressedRequest(path, tuple(headers.items()), msgspec.json.encode(members))


def _mark_last_block(messages: Raw, mark: Raw) -> Raw:
    """Return messages with the top-level cache mark moved to the last block of the last message that can carry one."""
    try:
        items = msgspec.json.decode(messages, type=list[Raw])
        last = _decode_members(items[-1])
        content = msgspec.json.decode(last["content"], type=str | list[dict[str, Raw]])
    except (msgspec.DecodeError, IndexError, KeyError):
        return messages
    if isinstance(content, str):
        content = [{"type": Raw(b'"text"'), "text": last["content"]}]
    for block in reversed(content):
        if block.get("type") not in _UNMARKED_BLOCKS:
            block.setdefault("cache_control", mark)
            last["content"] = Raw(msgspec.json.encode(content))
            items[-1] = Raw(msgspec.json.encode(last))
            break
    return Raw(msgspec.json.encode(items))


_UNMARKED_BLOCKS = (Raw(b'"thinking"'), Raw(b'"redacted_thinking"'))


def address_count(provider: Provider, address: AddressFacts, route: Route, body: bytes) -> AddressedRequest | None:
    """Return a request for the number of tokens; None if the platform has no endpoint for it."""
    if not address.count_path:
        return None
    members: dict[str, Any] = dict(_decode_members(body))
    model = route.model or _decode_string(members.get("model"))
    if address.count_members:
        members = {name: value for name, value in members.items() if name in address.count_members}
    if address.version:
        members["anthropic_version"] = address.version
    return AddressedRequest(
        _fill_path(address.count_path, provider, model), route.headers, msgspec.json.encode(members)
    )


def _fill_path(template: str, provider: Provider, model: str) -> str:
    """Return a path with the settings of the provider and the model, percent-encoded."""
    name = model.rpartition("models/")[2] if "publishers/" in model or model.startswith("models/") else model
    if not name.strip("."):
        raise UnaddressableRequest(f"no path for the model {model!r}")
    return template.format(
        model=quote(name, safe=":@", errors="replace"),
        project=quote(provider.project or "", safe=":"),
        region=quote(provider.region or "", safe=""),
    )


def _decode_string(value: Raw | None) -> str:
    """Return a JSON value if it is a string, else an empty one."""
    decoded = None if value is None else msgspec.json.decode(value)
    return decoded if isinstance(decoded, str) else ""


# ---- responses


def convert_response(response: UpstreamResponse, address: AddressFacts | None) -> UpstreamResponse:
    """Return a successful response; a stream in the platform's own framing is converted to server-sent events."""
    if address is not None and address.framing == "aws":
        media_type = response.headers.get("content-type", "").partition(";")[0].strip()
        if media_type == EVENT_STREAM_TYPE:
            response.convert(InvokeStreamDecoder())
    return response


class _Chunk(Struct):
    """The payload of a `chunk` event: an event of the vendor's stream in base64."""

    bytes: str = ""


class _Typed(Struct):
    """The type of an event of a Messages stream."""

    type: str | None = None


class _Fault(Struct):
    """The payload of an exception."""

    message: str | None = None
    Message: str | None = None  # the spelling of AWS's front end


class InvokeStreamDecoder:
    """Decodes the event stream of Bedrock's `InvokeModelWithResponseStream` to server-sent events."""

    def __init__(self) -> None:
        self._splitter = EventStreamSplitter()

    def feed(self, data: bytes) -> bytes:
        """Decode bytes, cut anywhere, to the frames that they complete. Raises `FramingError` if they are invalid."""
        return b"".join([_encode_event(message) for message in self._splitter.feed(data)])

    def close(self) -> None:
        """Signal the end of the stream. Raises `FramingError` if it is truncated."""
        self._splitter.close()


def _encode_event(message: EventMessage) -> bytes:
    """Return one message as an SSE frame; empty for an unknown kind of event."""
    kind = message.headers.get(":message-type")
    if kind in ("exception", "error"):
        name = message.headers.get(":exception-type") or message.headers.get(":error-code") or ""
        text = _fault_text(message.payload) or message.headers.get(":error-message") or name
        return encode_sse_frame(_anthropic_error(_EXCEPTION_TYPES.get(name.lower(), "api_error"), text), b"error")
    if message.headers.get(":event-type") != "chunk":
        return b""
    try:
        event = base64.b64decode(msgspec.json.decode(message.payload, type=_Chunk).bytes, validate=True)
        name = msgspec.json.decode(event, type=_Typed).type or "completion"
    except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error, ValueError, RecursionError):
        raise FramingError("invalid chunk in an event stream") from None
    return encode_sse_frame(event, name.encode(errors="replace"))


_EXCEPTION_TYPES = {
    "accessdeniedexception": "permission_error",
    "internalserverexception": "api_error",
    "modelerrorexception": "api_error",
    "modelnotreadyexception": "overloaded_error",
    "modelstreamerrorexception": "api_error",
    "modeltimeoutexception": "timeout_error",
    "resourcenotfoundexception": "not_found_error",
    "servicequotaexceededexception": "rate_limit_error",
    "serviceunavailableexception": "overloaded_error",
    "throttlingexception": "rate_limit_error",
    "validationexception": "invalid_request_error",
}
"""Anthropic's error types, by the exceptions of Bedrock in lower case."""

_STATUS_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def convert_error(body: bytes, status: int, headers: dict[str, str]) -> bytes:
    """Convert a platform's error body to Anthropic's format; a body already in that format is unchanged.

    Bedrock sends `{"message": ...}` and the exception in a header; Google's front end sends its own errors, in which
    it may embed Anthropic's.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body
    value = value[0] if isinstance(value, list) and value else value
    if not isinstance(value, dict) or value.get("type") == "error":
        return body
    error = value.get("error")
    text = error.get("message") if isinstance(error, dict) else value.get("message") or value.get("Message")
    if not isinstance(text, str):
        return body
    if text.startswith('{"type":"error"'):
        return text.encode(errors="replace")
    exception = headers.get("x-amzn-errortype", "").partition(":")[0].lower()
    kind = _EXCEPTION_TYPES.get(exception) or _STATUS_TYPES.get(status, "api_error")
    return _anthropic_error(kind, text)


def _anthropic_error(kind: str, message: str) -> bytes:
    """Return an error in Anthropic's form."""
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})


def _fault_text(payload: bytes) -> str | None:
    """Return the message of an exception's payload; None without one."""
    try:
        fault = msgspec.json.decode(payload, type=_Fault)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return fault.message or fault.Message
