"""Cloud platforms as the simulator serves them: their paths, and the frame that they put around a vendor's protocol."""

import base64
import re
from functools import lru_cache

import msgspec
from msgspec import Raw

from toolwire.codec.aws_framing import encode_message
from toolwire.codec.framing import SseSplitter
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.surface import EndpointMatch
from toolwire.codec.validation import JsonObject
from toolwire.upstream.address import BETA_HEADER, EVENT_STREAM_TYPE
from toolwire.upstream.simulator.hosts.refusals import Violations, violation

_MODEL = "(?P<model>.+)"
_VERSION = re.compile(r"^/v1(?:beta1)?/")


@lru_cache(maxsize=64)
def _path_pattern(template: str) -> re.Pattern[str]:
    """Return a pattern for the paths of a template; both versions of Google's API are served."""
    pattern = re.escape(_VERSION.sub("/VERSION/", template.partition("?")[0]))
    for name, form in (("model", _MODEL), ("project", "[^/]+"), ("region", "[^/]+")):
        pattern = pattern.replace(re.escape(f"{{{name}}}"), form)
    return re.compile(pattern.replace("/VERSION/", "/v1(?:beta1)?/"))


def match_path(profile: HostProfile, path: str) -> EndpointMatch | None:
    """Return the model, streaming and token-count facts in a path; None if it is no path of the platform."""
    address = profile.address
    for template, stream, counts in (
        (address.count_path, False, True),
        (address.stream_path, True, False),
        (address.path, False, False),
    ):
        if template and (match := _path_pattern(template).fullmatch(path)) is not None:
            return EndpointMatch(match.groupdict().get("model"), stream, counts)
    return None


def check_frame(body: JsonObject, betas: str, profile: HostProfile) -> Violations:
    """Check what a platform adds to the body, and moves out of it."""
    address, fields = profile.address, profile.fields
    if address.version and not isinstance(body.get("anthropic_version"), str):
        yield violation("address.version", "anthropic_version")
    names = (*address.moved, *(() if address.cache_control else ("cache_control",)))
    for name in names:
        if name in body:
            yield violation("fields.unknown", name, name=name)
    listed = body.get(address.beta_member, []) if address.beta_member else []
    for beta in [*(listed if isinstance(listed, list) else []), *filter(None, map(str.strip, betas.split(",")))]:
        if fields.betas is not None and beta not in fields.betas:
            yield violation("fields.betas", BETA_HEADER, name=beta)


def remove_frame(body: bytes, match: EndpointMatch, profile: HostProfile) -> bytes:
    """Return the body as the vendor's protocol has it, with the members that the path states."""
    address = profile.address
    members = msgspec.json.decode(body, type=dict[str, Raw])
    for name in ("anthropic_version", address.beta_member):
        members.pop(name, None)
    if "model" in address.moved and match.model is not None:
        members["model"] = Raw(msgspec.json.encode(match.model))
    if "stream" in address.moved and match.stream:
        members["stream"] = Raw(b"true")
    return msgspec.json.encode(members)


class InvokeDialect:
    """Frames the answers of Bedrock's `InvokeModelWithResponseStream`."""

    stream_type = EVENT_STREAM_TYPE

    def __init__(self) -> None:
        self._splitter = SseSplitter()

    def adapt_body(self, body: bytes) -> bytes:
        """Return a complete response, which has no frame."""
        return body

    def adapt_stream(self, data: bytes) -> bytes:
        """Return SSE frames as messages of an event stream; an error becomes an exception."""
        return b"".join([self._encode(frame) for frame in self._splitter.feed(data)])

    def _encode(self, event: bytes) -> bytes:
        """Return one event as a message."""
        value = msgspec.json.decode(event)
        if value.get("type") == "error":
            headers = {":exception-type": "modelStreamErrorException", ":message-type": "exception"}
            payload = {"message": value["error"]["message"]}
        else:
            headers = {":event-type": "chunk", ":message-type": "event"}
            payload = {"bytes": base64.b64encode(event).decode(), "p": "abcdefgh"}
        return encode_message({**headers, ":content-type": "application/json"}, msgspec.json.encode(payload))


EXCEPTIONS = {
    400: "ValidationException",
    401: "AccessDeniedException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    413: "ValidationException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
    529: "ServiceUnavailableException",
}
"""Bedrock's exceptions, by status; others are an `InternalServerException`."""


def encode_exception(message: str, status: int) -> tuple[bytes, tuple[bytes, bytes]]:
    """Return the body and the header of an error of Bedrock."""
    name = EXCEPTIONS.get(status, "InternalServerException")
    return msgspec.json.encode({"message": message}), (b"x-amzn-errortype", f"{name}:".encode())
