"""Model names as resource names in a path: a name fills its own segments, and never chooses another path.

Model names are the client's to choose, and the gateway sends the path with the owner's key. google-genai refuses `..`,
`?` and `&` for the same reason.
"""

import re

_LIMIT = 512
_PLAIN = re.compile(r"(?:models/)?[A-Za-z0-9][A-Za-z0-9_.@-]*")
_RESOURCE = re.compile(
    r"(?:models|tunedModels)/[^/]+"
    r"|(?:projects/[^/]+/locations/[^/]+/)?publishers/[^/]+/models/[^/]+"
    r"|projects/[^/]+/locations/[^/]+/endpoints/[^/]+"
)
_RESERVED = re.compile(r"[^A-Za-z0-9_.~@-]+")
_ENCODED = re.compile(rb"%([0-9A-F]{2})")
_ILLEGAL = re.compile(r"[\s\x00-\x1f\x7f-\x9f?#\\\ud800-\udfff]|(?:^|/)\.{0,2}(?:/|$)")


def is_legal_name(model: str) -> bool:
    """Tell whether a model name can stand in a path: no white space, `?`, `#`, or empty or dot segments."""
    plain = not model or _PLAIN.fullmatch(model) is not None
    return len(model) <= _LIMIT and (plain or _ILLEGAL.search(model) is None)


def resource_path(model: str) -> str:
    """Return the resource name for a path, as google-genai makes it, with each segment percent-encoded.

    Routers write the vendor before the same model; `google/` is removed.
    """
    if _PLAIN.fullmatch(model):
        return model if model.startswith("models/") else f"models/{model}"
    segments = model.split("/") if _RESOURCE.fullmatch(model) else ["models", model.removeprefix("google/")]
    return "/".join(_RESERVED.sub(_percent_encode, segment) for segment in segments)


def resource_name(path: str) -> str:
    """Return the resource name that `resource_path` encoded."""
    return _ENCODED.sub(lambda found: bytes.fromhex(found[1].decode()), path.encode()).decode()


def _percent_encode(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace"))
