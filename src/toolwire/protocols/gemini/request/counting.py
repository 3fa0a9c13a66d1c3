"""`:countTokens`: the request, wrapped up: beside it, the Gemini API takes `contents` only."""

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.codec.counting import Counting

from .resources import resource_name


class Wrapped(Struct):
    """Vertex AI's clients write the fields of the request itself."""

    generateContentRequest: Raw | UnsetType = UNSET  # noqa: N815 - its name on the wire


class CountAnswer(Struct):
    totalTokens: int = 0  # noqa: N815 - its name on the wire


def _wrap(body: bytes, path: str) -> bytes:
    """The wrapped request must name the model, too."""
    place, colon, _ = path.rpartition(":")
    model = resource_name("/".join(place.split("/")[-2:])) if colon else ""
    fields = msgspec.json.decode(body, type=dict[str, Raw])
    return msgspec.json.encode({"generateContentRequest": {"model": model, **fields}})


def _unwrap(body: bytes) -> bytes:
    try:
        wrapped = msgspec.json.decode(body, type=Wrapped).generateContentRequest
    except msgspec.DecodeError:
        return body
    return body if wrapped is UNSET else bytes(wrapped)


COUNTING = Counting(
    path=lambda path: f"{path.partition('?')[0].rpartition(':')[0]}:countTokens",
    wrap=_wrap,
    unwrap=_unwrap,
    encode_count=CountAnswer,
    decode_count=lambda body: msgspec.json.decode(body, type=CountAnswer).totalTokens,
)
