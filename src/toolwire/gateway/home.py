"""A provider that speaks the client's own protocol gets the request as the client wrote it, but for the model's name.

It was decoded before, so that what nobody could read is refused here. Each member counts once: a second `model`, which
one reader would take and another would not, does not get through.
"""

import msgspec
from msgspec import Raw

from toolwire.canonical.request import Request
from toolwire.codec.interface import Codec

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_TRUE, _FALSE = Raw(b"true"), Raw(b"false")


def as_written(body: bytes, request: Request, codec: Codec, model: str | None, *, stream: bool) -> bytes | None:
    """The client's own bytes for this model; None if the protocol names the model in the address."""
    if "{model}" in codec.surface.endpoints[0].path:
        return None
    members = _members(body)
    if model is not None:
        members["model"] = Raw(msgspec.json.encode(model))
    if request.stream is None:
        members["stream"] = _TRUE if stream else _FALSE
    return msgspec.json.encode(members)
