"""The simulator's ASGI app: serves one protocol or all of them, and stores conversations."""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Message
from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.canonical.events import Event, PartDelta, ResponseFailed
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.framing import escape_line_separators
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.interface import Codec, ResponseContext, Route
from toolwire.codec.models.names import base_model_name
from toolwire.codec.surface import EndpointMatch, ModelCard
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.address import BETA_HEADER, EVENT_STREAM_TYPE
from toolwire.upstream.asgi import (
    JSON_HEADER,
    AsgiRequest,
    BodyTooLarge,
    ClientDisconnected,
    Header,
    Receive,
    Scope,
    Send,
    run_lifespan,
)
from toolwire.upstream.simulator.compaction import check_compactions, compact_on_demand
from toolwire.upstream.simulator.faults import ERROR_RESPONSE, ScriptedFault, break_body, break_early, split_events
from toolwire.upstream.simulator.hosts.dialects import ChatDialect
from toolwire.upstream.simulator.hosts.host import SimulatedHost
from toolwire.upstream.simulator.hosts.platforms import InvokeDialect, encode_exception
from toolwire.upstream.simulator.hosts.refusals import HostRefusal
from toolwire.upstream.simulator.model import check_dialect, generate_reply, write_as_text
from toolwire.upstream.simulator.provider_traits import PROVIDER_TRAITS
from toolwire.upstream.simulator.response_builder import ResponseBuilder, chunk_response, count_input_tokens
from toolwire.upstream.simulator.script import Script, ScriptedTurn
from toolwire.upstream.simulator.validation import (
    ProviderRejection,
    SignatureKey,
    decode_valid_request,
    missing_key_error,
    model_not_found_error,
    require_signatures,
    response_not_found_error,
    unsupported_tools_error,
)

_PLATFORM_VERSION = "2023-06-01"
"""The version of Anthropic's API that the versions of cloud platforms correspond to."""
_STORED_KINDS = {"openai-responses": "response", "gemini-interactions": "interaction"}


_MAX_CONVERSATIONS = 1000


class StoredConversations:
    """Conversations by response id, for protocols that continue a stored response (`previous_response_id`).

    The oldest are dropped first.
    """

    def __init__(self) -> None:
        self._messages: dict[str, tuple[Message, ...]] = {}

    def expand_request(self, request: Request, protocol: str) -> Request:
        """Return the request with the stored conversation that it continues in front."""
        state = request.continuation
        if protocol not in _STORED_KINDS or state is None or state.id is None:
            return request
        kind = state.kind or _STORED_KINDS[protocol]
        if kind != _STORED_KINDS[protocol] or state.id not in self._messages:
            raise ProviderRejection(response_not_found_error(protocol, kind, state.id))
        return replace(request, messages=(*self._messages[state.id], *request.messages))

    def store(self, request: Request, response: Response, protocol: str) -> None:
        """Store the conversation under the id of the response, unless the request declines it."""
        state = request.continuation
        if protocol not in _STORED_KINDS or response.id is None or (state is not None and state.store is False):
            return
        reply_messages = response.candidates[0].messages if response.candidates else ()
        self._messages.pop(response.id, None)
        self._messages[response.id] = (*request.messages, *reply_messages)
        while len(self._messages) > _MAX_CONVERSATIONS:
            del self._messages[next(iter(self._messages))]


LIMIT_BODY = 64 * 1024 * 1024
OLLAMA_VERSION = "0.99.0"
CONTEXT_LENGTH = 131_072
"""The context of the simulated model, in tokens; it reads any prompt completely."""

_GARBAGE = b"{no JSON}"

# An endless stream must not starve other requests.
_MIN_PACE = 0.001


class Simulator:
    """The simulator, as an ASGI app.

    `protocols` limits it to these; by default it serves all. `models` are the only models it serves; by default it
    accepts any name. `require_key` rejects requests without a key. `pace` is the delay in seconds between the chunks
    of a stream. With a `dialect`, the model's calls and thinking are written into its text. Without `tool_calling`, it
    rejects tools. `profiles` make it as strict as these hosts, one for each protocol. It refuses signatures and
    encrypted reasoning of another `account` or model.
    """

    def __init__(
        self,
        protocols: Iterable[str] = (),
        *,
        models: tuple[str, ...] | None = None,
        script: Script | None = None,
        require_key: bool = False,
        pace: float = 0,
        limit_body: int = LIMIT_BODY,
        dialect: str | None = None,
        tool_calling: bool = True,
        profiles: Iterable[HostProfile] = (),
        account: str = "",
    ) -> None:
        check_dialect(dialect)
        self._dialect = dialect
        self._tool_calling = tool_calling
        self._codecs = {name: PROTOCOLS[name] for name in tuple(protocols) or PROVIDER_TRAITS}
        self._models = models
        self._script = script
        self._require_key = require_key
        self._pace = pace
        self._limit_body = limit_body
        self._signature_key = SignatureKey().derive(account)
        self._conversations = StoredConversations()
        self._hosts = {profile.protocol: SimulatedHost(profile) for profile in profiles}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection, as the server calls it."""
        if scope["type"] == "lifespan":
            await run_lifespan(receive, send)
        if scope["type"] != "http":
            return
        http_request = AsgiRequest(scope, receive, send, dict(scope["headers"]))
        codec = self._match_protocol(http_request)
        with suppress(ClientDisconnected):
            try:
                await self._handle(http_request, codec)
            except ProviderRejection as rejection:
                await _send_error(http_request, rejection.error, codec, is_invoke=self._is_invoke(codec))
            except HostRefusal as refusal:
                headers = [JSON_HEADER]
                if self._is_invoke(codec):
                    headers.append(encode_exception("", refusal.status)[1])
                await http_request.respond(refusal.status, refusal.body, headers)

    def _is_invoke(self, codec: Codec) -> bool:
        """Return whether the host answers as Bedrock's `InvokeModel` does."""
        host = self._hosts.get(codec.name)
        return host is not None and host.profile.address.framing == "aws"

    def _match_endpoint(self, path: str, codec: Codec) -> EndpointMatch | None:
        """Return the facts in a path of the protocol, or of the platform that serves it; None if it is neither."""
        host = self._hosts.get(codec.name)
        return host.match(path) if host is not None and host.is_platform else codec.surface.match(path)

    def _match_protocol(self, http_request: AsgiRequest) -> Codec:
        """Return the codec of the protocol that the path belongs to, or else that the request looks like."""
        path, headers = http_request.path, http_request.headers
        for codec in self._codecs.values():
            if self._match_endpoint(path, codec) is not None:
                return codec
        guess = "openai-chat"
        if path.startswith("/api/"):
            guess = "openrouter" if path.startswith("/api/v1/") else "ollama"
        elif b"anthropic-version" in headers:
            guess = "anthropic"
        elif path.startswith("/v1beta/") or b"x-goog-api-key" in headers or _has_query_key(http_request):
            guess = "gemini"
        return self._codecs.get(guess) or next(iter(self._codecs.values()))

    async def _handle(self, http_request: AsgiRequest, codec: Codec) -> None:
        """Handle one HTTP request. Raises `ProviderRejection` for an error response."""
        if self._require_key and not _has_key(http_request, codec):
            raise ProviderRejection(missing_key_error(codec.name))
        endpoint = self._match_endpoint(http_request.path, codec)
        if endpoint is None:
            await _send_json(http_request, await self._model_resource(http_request, codec))
            return
        if http_request.method != "POST":
            raise ProviderRejection(_path_not_found_error(http_request))
        body = await _read_body(http_request, self._limit_body)
        version = http_request.header(codec.surface.version_header or "") or None
        route = Route(path=http_request.path, model=endpoint.model, stream=endpoint.stream, version=version)
        host = self._hosts.get(codec.name)
        if host is not None and host.is_platform and not endpoint.counts_tokens:
            body = host.remove_frame(body, http_request.header(BETA_HEADER), endpoint)
            route = replace(route, version=_PLATFORM_VERSION)
        if endpoint.counts_tokens:
            await _send_json(http_request, _count_tokens(codec, body, route))
            return
        if host is not None:
            host.check_request(body)
        request = decode_valid_request(codec, body, route, check=host is None or host.keeps_vendor_rules)
        self._check_model(request.model or "", codec)
        if request.tools and not self._tool_calling:
            raise ProviderRejection(unsupported_tools_error(codec.name, request.model or ""))
        request = self._conversations.expand_request(request, codec.name)
        if host is None or host.profile.reasoning.signatures:
            require_signatures(request, codec.name, self._signature_key_for(request))
        request = request if host is None else host.apply_defaults(request, body)
        await self._answer(http_request, codec, request, compacts_only=endpoint.compacts)

    async def _answer(self, http_request: AsgiRequest, codec: Codec, request: Request, *, compacts_only: bool) -> None:
        """Compact the conversation of a valid request, or respond to it."""
        if not await self._compact(http_request, codec, request, compacts_only=compacts_only):
            await self._respond(http_request, codec, request)

    async def _compact(self, http_request: AsgiRequest, codec: Codec, request: Request, *, compacts_only: bool) -> bool:
        """Send the response to a request that only asks for a compaction; return False for other requests."""
        if codec.name in self._hosts:  # no profile says that its server compacts
            return False
        check_compactions(request, self._signature_key)
        created = int(time.time())
        response = compact_on_demand(codec, request, self._signature_key, compacts_only=compacts_only, created=created)
        if isinstance(response, bytes):
            await http_request.respond(200, response, [JSON_HEADER])
        elif response is not None:
            answer = Answer(codec, response, ResponseContext(request=request, created=created), dialect=None)
            send = _stream_response if request.stream else _send_response
            await send(http_request, answer, ScriptedTurn())
        return response is not None

    def _signature_key_for(self, request: Request) -> SignatureKey:
        """Return the key of the account and the requested model."""
        return self._signature_key.derive(base_model_name(request.model or ""))

    async def _respond(self, http_request: AsgiRequest, codec: Codec, request: Request) -> None:
        """Send the scripted turn, or the model's reply, to a valid request."""
        turn = None if self._script is None else self._script.next_turn(request, codec.name)
        if turn is not None:
            await http_request.pause(turn.delay)
            if turn.is_error_only() or turn.fault == ERROR_RESPONSE:
                raise ProviderRejection(turn.to_api_error())
            if turn.fault is not None and turn.fault.is_early and turn.fault.kind != "error":
                await break_early(http_request, turn.fault)
                return
        reply = turn.to_reply() if turn is not None else generate_reply(request, codec.name)
        if turn is None and self._dialect is not None:
            reply = write_as_text(reply, self._dialect)
        response = ResponseBuilder(request, codec.name, self._signature_key_for(request)).build(reply)
        self._conversations.store(request, response, codec.name)
        context = ResponseContext(request=request, created=int(time.time()))
        turn = turn or ScriptedTurn(pace=self._pace)
        host = self._hosts.get(codec.name)
        answer = Answer(codec, response, context, dialect=None if host is None else host.dialect())
        if codec.surface.streams_by_default if request.stream is None else request.stream:
            await _stream_response(http_request, answer, turn)
        else:
            await _send_response(http_request, answer, turn)

    async def _model_resource(self, http_request: AsgiRequest, codec: Codec) -> Any:
        """Return the list of models, one model, or what Ollama's clients request at start-up."""
        models = [
            ModelCard(name) for name in (PROVIDER_TRAITS[codec.name].models if self._models is None else self._models)
        ]
        match http_request.method, http_request.path.strip("/").split("/"):
            case "GET", ["api", "version"] if codec.name == "ollama":
                return {"version": OLLAMA_VERSION}
            case "GET", ["api", "tags"] if codec.name == "ollama":
                return codec.encode_models(models)
            case "POST", ["api", "show"] if codec.name == "ollama":
                return codec.encode_model(
                    ModelCard(
                        self._check_model(_model_in_body(await _read_body(http_request, self._limit_body)), codec),
                        context=CONTEXT_LENGTH,
                        tool_calling=self._tool_calling,
                    )
                )
            case "GET", ["v1" | "v1beta", "models"] | ["api", "v1", "models"]:
                return codec.encode_models(models)
            case "GET", ["v1" | "v1beta", "models", *name] | ["api", "v1", "model", *name] if name:
                return codec.encode_model(ModelCard(self._check_model("/".join(name), codec)))
            case _:
                raise ProviderRejection(_path_not_found_error(http_request))

    def _check_model(self, model: str, codec: Codec) -> str:
        """Return the name of the model, or raise `ProviderRejection` if it is not served."""
        if self._models is not None and model not in self._models:
            raise ProviderRejection(model_not_found_error(codec.name, model))
        return model


def _has_key(http_request: AsgiRequest, codec: Codec) -> bool:
    """Return whether the request has an API key, in a header or in the query."""
    header_names = (codec.surface.key_header, "authorization")
    return any(http_request.header(name) for name in header_names) or _has_query_key(http_request)


def _has_query_key(http_request: AsgiRequest) -> bool:
    """Return whether the query has an API key."""
    return b"key=" in http_request.scope.get("query_string", b"")


async def _read_body(http_request: AsgiRequest, limit: int) -> bytes:
    """Read the body, or reject the request if it is longer than `limit` bytes."""
    try:
        return await http_request.receive_body(limit)
    except BodyTooLarge:
        reason = f"Request exceeds the maximum size of {limit} bytes"
        raise ProviderRejection(ApiError(kind="too_large", message=reason)) from None


async def _send_json(http_request: AsgiRequest, value: Any) -> None:
    """Send a value as a JSON response with status 200."""
    await http_request.respond(200, msgspec.json.encode(value), [JSON_HEADER])


async def _send_error(http_request: AsgiRequest, error: ApiError, codec: Codec, *, is_invoke: bool) -> None:
    """Send an error in the protocol's format, or in that of Bedrock's `InvokeModel`."""
    status = error.status or codec.surface.status_of(error.kind)
    headers: list[Header] = [JSON_HEADER]
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%g" % error.retry_after))
    body = codec.encode_error(replace(error, status=status)).to_bytes()
    if is_invoke:
        body, exception = encode_exception(error.message, status)
        headers.append(exception)
    await http_request.respond(status, body, headers)


def _path_not_found_error(http_request: AsgiRequest) -> ApiError:
    """Return the error for a path that no protocol has."""
    message = f"Invalid URL ({http_request.method} {http_request.path}): the simulator has no such endpoint"
    return ApiError(kind="not_found", message=message)


def _count_tokens(codec: Codec, body: bytes, route: Route) -> Any:
    """Return the token count of a request, which is not validated like one to be answered."""
    if codec.token_count is None:
        raise AssertionError(f"{codec.name} has no token count endpoint")
    try:
        request = codec.decode_request(codec.token_count.unwrap_request(body), route)
    except DecodeError as error:
        raise ProviderRejection(ApiError(kind="invalid_request", message=str(error))) from None
    return codec.token_count.encode_count(count_input_tokens(request))


def _model_in_body(body: bytes) -> str:
    """Return the name of the model in a body. Older clients of Ollama call the field `name`."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        fields = {}
    model = fields.get("model") or fields.get("name")
    if not isinstance(model, str):
        raise ProviderRejection(ApiError(kind="invalid_request", message="model is required"))
    return model


class Answer:
    """A response in the bytes of its protocol, and of the host if it has a dialect."""

    def __init__(
        self, codec: Codec, response: Response, context: ResponseContext, *, dialect: ChatDialect | InvokeDialect | None
    ) -> None:
        self.response = response
        is_invoke = isinstance(dialect, InvokeDialect)
        self.stream_type = EVENT_STREAM_TYPE if is_invoke else codec.surface.stream_type
        self._codec = codec
        self._context = context
        self._dialect = dialect
        self._encoder = codec.stream_encoder(context)

    def encode_body(self) -> bytes:
        """Encode the complete response."""
        body = self._codec.encode_response(self.response, self._context).to_bytes()
        return body if self._dialect is None else self._dialect.adapt_body(body)

    def encode_events(self, events: list[Event]) -> bytes:
        """Encode events as frames of a stream."""
        return self._adapt_frames(self._encoder.encode(events))

    def close_stream(self) -> bytes:
        """Encode the end of the stream."""
        return self._adapt_frames(self._encoder.close())

    def _adapt_frames(self, data: bytes) -> bytes:
        """Return frames in the dialect of the host."""
        if isinstance(self._dialect, InvokeDialect):
            return self._dialect.adapt_stream(data)
        return escape_line_separators(data if self._dialect is None else self._dialect.adapt_stream(data))


async def _send_response(http_request: AsgiRequest, answer: Answer, turn: ScriptedTurn) -> None:
    """Send a complete response, or the failure that the turn scripts."""
    if turn.error is not None:
        raise ProviderRejection(turn.to_api_error())
    body = answer.encode_body()
    if turn.fault is not None:
        await _send_faulty_response(http_request, body, turn, turn.fault)
    elif turn.cut is not None:  # half of the body with the full length, so that the server closes the connection
        await http_request.start_response(200, [JSON_HEADER, (b"content-length", str(len(body)).encode())])
        await http_request.write_body(body[: len(body) // 2], more_body=True)
    else:
        await http_request.respond(200, body if turn.garbage is None else turn.garbage.encode(), [JSON_HEADER])


async def _send_faulty_response(
    http_request: AsgiRequest, body: bytes, turn: ScriptedTurn, fault: ScriptedFault
) -> None:
    """Send half of a body, and break it as the turn scripts."""
    if fault.kind == "error":
        raise ProviderRejection(turn.to_api_error())
    await http_request.start_response(200, [JSON_HEADER])
    await http_request.write_body(body[: len(body) // 2], more_body=True)
    await break_body(http_request, fault, body[len(body) // 2 :], _GARBAGE)


async def _stream_fault(http_request: AsgiRequest, answer: Answer, turn: ScriptedTurn, fault: ScriptedFault) -> None:
    """Stream a response up to the point of a fault, and break it there."""
    events = [event for group in chunk_response(answer.response) for event in group]
    before, interrupted = ([], []) if fault.is_early else split_events(events, fault.at)
    if fault.kind == "error":
        before.append(ResponseFailed(error=turn.to_api_error()))
    await http_request.write_body(answer.encode_events(before), more_body=True)
    if fault.kind == "error":
        await http_request.write_body(answer.close_stream())
        return
    is_framed = answer.stream_type.endswith("event-stream")
    garbage = b"data: %b\n\n" % _GARBAGE if is_framed else _GARBAGE + b"\n"
    await break_body(http_request, fault, answer.encode_events(interrupted), garbage)


async def _stream_response(http_request: AsgiRequest, answer: Answer, turn: ScriptedTurn) -> None:
    """Stream a response in chunks, with the failures that the turn scripts."""
    content_type = (b"content-type", answer.stream_type.encode())
    await http_request.start_response(200, [content_type, (b"cache-control", b"no-cache")])
    if turn.fault is not None:
        await _stream_fault(http_request, answer, turn, turn.fault)
        return
    for number, events in enumerate(chunk_response(answer.response)):
        if number:
            await http_request.pause(turn.pace)
        if number == turn.cut:
            return  # incomplete, so that the server closes the connection
        if number and turn.garbage is not None:
            await http_request.write_body(turn.garbage.encode())
            return
        if data := answer.encode_events(events):
            await http_request.write_body(data, more_body=True)
        while turn.endless and _ends_with_delta(events):
            await http_request.pause(max(turn.pace, _MIN_PACE))
            await http_request.write_body(answer.encode_events(events[-1:]), more_body=True)
    await http_request.write_body(answer.close_stream())


def _ends_with_delta(events: list[Event]) -> bool:
    """Return whether the last event can be repeated in an endless stream."""
    return isinstance(events[-1], PartDelta)
