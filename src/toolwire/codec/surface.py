"""The HTTP surface of a protocol: endpoints, headers and error statuses."""

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
STATUS_KINDS: dict[int, ErrorKind] = {status: kind for kind, status in reversed(_STATUSES.items())} | {
    408: "timeout",
    422: "invalid_request",
    502: "server",
    529: "overloaded",
}
"""Error kinds by HTTP status, for errors that say nothing more specific."""


class Endpoint(Struct, frozen=True):
    """A URL path that accepts requests; `{model}` in it stands for a model name."""

    path: str
    stream: bool | None = None  # None: the body decides
    counts_tokens: bool = False  # counts the tokens of a request instead of answering it
    compacts: bool = False  # only compacts the conversation of a request


class EndpointMatch(Struct, frozen=True):
    """Facts about a request that its path determines."""

    model: str | None = None
    stream: bool | None = None
    counts_tokens: bool = False
    compacts: bool = False


class ModelCard(Struct, frozen=True):
    """An entry in a list of models."""

    id: str
    owner: str = "toolwire"
    context: int | None = None  # tokens; None if unknown
    tool_calling: bool = True


class Surface(Struct, frozen=True, kw_only=True):
    """The HTTP conventions of a protocol."""

    endpoints: tuple[Endpoint, ...]
    key_header: str  # the header that carries the API key
    headers: tuple[tuple[str, str], ...] = ()  # sent with every request to the provider
    version_header: str | None = None
    passthrough_header: str | None = None  # a header with feature names that a provider of the same protocol must see
    stream_type: str = "text/event-stream"  # media type of a stream
    sse_query: bytes | None = None  # the query parameter that selects SSE; without it, a stream is one JSON array
    statuses: dict[ErrorKind, int] = {}  # by error kind, where they differ from the usual ones
    can_pause: bool = False  # the provider may pause its own work (`pause_turn`) and expects a request to continue
    streams_by_default: bool = False  # requests stream unless they decline
    allows_comments: bool = True  # clients ignore SSE comments

    def match(self, path: str) -> EndpointMatch | None:
        """Return the model, streaming and token-count facts in a path; None if it is no endpoint of the protocol."""
        for endpoint in self.endpoints:
            before, placeholder, after = endpoint.path.partition("{model}")
            if not placeholder:
                if path == endpoint.path:
                    return EndpointMatch(
                        stream=endpoint.stream, counts_tokens=endpoint.counts_tokens, compacts=endpoint.compacts
                    )
            elif path.startswith(before) and path.endswith(after) and len(path) > len(before) + len(after):
                return EndpointMatch(
                    path[len(before) : len(path) - len(after)], endpoint.stream, endpoint.counts_tokens
                )
        return None

    def is_framed(self, data: bytes) -> bool:
        """Return whether a stream that begins with this data consists of frames, not one JSON array."""
        return self.sse_query is None or data.lstrip()[:1] not in b"[{"

    def is_json_array(self, query: bytes) -> bool:
        """Return whether a stream requested with this query is one JSON array."""
        return self.sse_query is not None and self.sse_query not in query.split(b"&")

    def status_of(self, kind: ErrorKind) -> int:
        """Return the HTTP status with which the provider reports an error of this kind."""
        return self.statuses.get(kind) or _STATUSES[kind]

    def auth_header(self, key: str) -> tuple[str, str]:
        """Return name and value of the header that sends an API key."""
        return self.key_header, f"Bearer {key}" if self.key_header == "authorization" else key
