"""Where a protocol is spoken over HTTP: the addresses that take its requests, and what its headers say."""

from msgspec import Struct

from toolwire.canonical.errors import ErrorKind

_STATUSES: dict[ErrorKind, int] = {
    "invalid_request": 400,
    "authentication": 401,
    "billing": 402,
    "permission": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "context_length": 400,
    "rate_limit": 429,
    "server": 500,
    "timeout": 504,
    "overloaded": 503,
    "other": 500,
}


class Endpoint(Struct, frozen=True):
    """An address. `{model}` in it stands for a model's name; `stream` is None where the body says it. `counts`: it is
    for counting the tokens of a request, not for answering it."""

    path: str
    stream: bool | None = None
    counts_tokens: bool = False


class EndpointMatch(Struct, frozen=True):
    """What an address says of the request sent to it."""

    model: str | None = None
    stream: bool | None = None
    counts_tokens: bool = False


class ModelCard(Struct, frozen=True):
    """A model on offer."""

    id: str
    owner: str = "toolwire"


class Surface(Struct, frozen=True, kw_only=True):
    """`key_header` is where the provider wants the key, `headers` what else it wants with every request. `pauses`: it
    may stop in the middle of its own work, and wants to be asked to go on. `streams`: a request that does not say
    whether to stream does. `comments`: its clients pass over comments in a stream. `events_word`: a stream is one JSON
    array unless the query holds it. `passed`: a header in which a client names what it uses of the protocol, lists of
    words; a provider of the same protocol has to know."""

    endpoints: tuple[Endpoint, ...]
    key_header: str
    headers: tuple[tuple[str, str], ...] = ()
    version_header: str | None = None
    passthrough_header: str | None = None
    stream_type: str = "text/event-stream"
    sse_query: bytes | None = None
    statuses: dict[ErrorKind, int] = {}
    can_pause: bool = False
    streams_by_default: bool = False
    allows_comments: bool = True

    def match(self, path: str) -> EndpointMatch | None:
        """What the path says, if it is one of this protocol's."""
        for endpoint in self.endpoints:
            before, placeholder, after = endpoint.path.partition("{model}")
            if not placeholder:
                if path == endpoint.path:
                    return EndpointMatch(stream=endpoint.stream, counts_tokens=endpoint.counts_tokens)
            elif path.startswith(before) and path.endswith(after) and len(path) > len(before) + len(after):
                return EndpointMatch(
                    path[len(before) : len(path) - len(after)], endpoint.stream, endpoint.counts_tokens
                )
        return None

    def is_framed(self, data: bytes) -> bool:
        """Whether a stream that begins with this is of events or lines, and not one JSON array."""
        return self.sse_query is None or data.lstrip()[:1] not in b"[{"

    def is_json_array(self, query: bytes) -> bool:
        """Whether a stream that is asked for with this query is one JSON array."""
        return self.sse_query is not None and self.sse_query not in query.split(b"&")

    def status_of(self, kind: ErrorKind) -> int:
        return self.statuses.get(kind) or _STATUSES[kind]

    def auth_header(self, key: str) -> tuple[str, str]:
        """The header that a key is sent in."""
        return self.key_header, f"Bearer {key}" if self.key_header == "authorization" else key
