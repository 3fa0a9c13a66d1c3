"""Context management that the gateway does in place of the upstream: clearing, and compaction by the upstream's model.

A provider of the client's own protocol gets the request as it is, if its host has the feature. Otherwise the history is
cleared and summarized here. The summary takes a request of its own to the same backend. It goes to the client in an
envelope, so that the next request opens it, whichever model it is for.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import OpaquePart, Text
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageEnd,
    MessageStart,
    PartDelta,
    PartDeltas,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Usage, add_usage
from toolwire.codec.context_management import (
    AppliedEdit,
    ClearThinking,
    ClearToolUses,
    Compact,
    Compaction,
    ContextManagementApi,
    Edit,
)
from toolwire.codec.envelope import EnvelopeKey, EnvelopePayload, is_envelope
from toolwire.codec.losses import LossReport, SourcePath, source_pointers
from toolwire.codec.wire.reader import decode_members
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.backend_facts import estimate_prompt
from toolwire.gateway.exchange.exchange import BufferedResponse, Exchange, ExchangeObserver
from toolwire.gateway.exchange.routing import Backend
from toolwire.translation.compaction import (
    SUMMARY_PROMPT,
    SummaryFailed,
    compacted_request,
    find_obstacle,
    has_compaction,
    kept_user_messages,
    open_compactions,
    read_summary,
    summary_request,
    with_open_request,
)
from toolwire.translation.context_edits import clear_thinking, clear_tool_uses
from toolwire.translation.history import has_envelopes

_REALM = "compaction"
"""The realm of envelopes with summaries, which are valid for all upstreams."""
_REFUSAL_STATUSES = frozenset({400, 404, 405, 422, 501})
_MISSING_STATUSES = frozenset({404, 405, 501})


class ManagedContext:
    """The context management of one request, and the part of it that the gateway did for the current backend."""

    def __init__(
        self, api: ContextManagementApi, request: Request, features: tuple[str, ...], *, is_rewritten: bool
    ) -> None:
        self.api = api
        self.request = request
        """The request as the client sent it, with the gateway's own summaries opened."""

        self.features = features
        self.is_native = False
        """Whether the backend does it itself."""

        self.summary_exchange: Exchange | None = None
        """The request for a summary that has to be sent first."""

        self.compaction: Compaction | None = None
        self.answers_with_summary = False
        """Whether the compaction is the complete response."""

        self.applied: tuple[AppliedEdit, ...] = ()
        self._was_rewritten = is_rewritten
        self._has_usage = False

    # ---- requests

    def prepare(self, exchange: Exchange, backend: Backend) -> None:
        """Apply the edits to the request for a backend, unless the backend does so itself."""
        self.is_native = self._can_delegate(exchange, backend)
        self.summary_exchange, self.applied = None, ()
        if self.is_native:
            exchange.request, exchange.is_rewritten = self.request, self._was_rewritten
            return
        request = self.api.without_plan(self.request)
        for edit in self._edits(exchange):
            if isinstance(edit, Compact):
                if self._must_compact(edit, request):
                    self._request_summary(exchange, backend, request, edit)
                continue
            request, applied = self._clear(exchange, request, edit)
            if applied is not None:
                self.applied = (*self.applied, applied)
        exchange.request, exchange.is_rewritten = request, True
        if self.compaction is not None:  # an earlier backend wrote it, and then failed
            self._use_summary(exchange)

    def _edits(self, exchange: Exchange) -> tuple[Edit, ...]:
        """Return the edits that the request asks for; an endpoint that only compacts asks for a summary."""
        return (Compact(stops=True),) if exchange.compacts_only else self.api.read_plan(self.request).edits

    def _can_delegate(self, exchange: Exchange, backend: Backend) -> bool:
        """Return whether the backend manages the context itself."""
        services, protocol = exchange.services, exchange.client_request.codec.name
        if not services.compaction.native:
            return False
        if any(other.provider.protocol != protocol for other in exchange.route_match.backends):
            return False  # another backend could not continue from the provider's own compaction
        if exchange.compacts_only and (self._was_rewritten or _depends_on_gateway(exchange)):
            return False
        host = services.catalog.look_up(backend.provider, backend.model or self.request.model).host
        has_features = host.pass_through or set(self.features) <= set(host.fields.betas or ())
        return has_features and services.unmanaged_models.get(_backend_key(backend, self.request)) is None

    def _clear(
        self, exchange: Exchange, request: Request, edit: ClearToolUses | ClearThinking
    ) -> tuple[Request, AppliedEdit | None]:
        """Apply a clearing edit."""
        if isinstance(edit, ClearThinking):
            return clear_thinking(request, edit, exchange.client_request.codec.wire_names)
        tokens = estimate_prompt(request) if edit.unit == "input_tokens" else 0
        return clear_tool_uses(request, edit, tokens)

    def _must_compact(self, edit: Compact, request: Request) -> bool:
        """Return whether a summary is needed; raise if one is asked for but impossible."""
        obstacle = find_obstacle(request.messages)
        if edit.threshold is None:
            if obstacle is not None:
                raise RequestRejected(_obstacle_error(obstacle))
            return True
        has_answers = any(message.role == "assistant" for message in request.messages)
        return obstacle is None and has_answers and estimate_prompt(request) > edit.threshold

    def _request_summary(self, exchange: Exchange, backend: Backend, request: Request, edit: Compact) -> None:
        """Create the exchange that asks the backend for a summary."""
        self.answers_with_summary = edit.stops
        if self.compaction is not None:
            return
        services, options = exchange.services, exchange.route_match.options
        prompt = options.compaction_prompt or services.compaction.prompt or SUMMARY_PROMPT
        if edit.instructions is not None:
            prompt = edit.instructions if edit.replaces_prompt else f"{prompt}\n\n{edit.instructions}"
        plain_options = replace(options, tools=(), retry_invalid_calls=0)
        summary_exchange = Exchange(
            services,
            replace(exchange.client_request, channel=None),
            summary_request(request, prompt, services.compaction.tokens),
            replace(exchange.route_match, options=plain_options),
            ExchangeObserver(),
            is_heavy=exchange.is_heavy,
        )
        summary_exchange.is_streaming, summary_exchange.is_rewritten = False, True
        self.summary_exchange = summary_exchange

    def read_response(self, exchange: Exchange, response: BufferedResponse) -> None:
        """Read the summary from the response to `summary_exchange`, and compact the conversation."""
        codec = exchange.client_request.codec
        decoded = codec.decode_response(response.body, _summary_context(exchange))
        try:
            summary = read_summary(decoded)
        except SummaryFailed as error:
            raise RequestRejected(summary_error(error), failover=True) from None
        if not self.api.keeps_user_messages:
            summary = with_open_request(summary, exchange.request.messages)
        if not self.api.has_plain_summary and not exchange.services.signing_keys:
            message = "compaction needs a key that signs envelopes: set server.seal_keys"
            raise RequestRejected(ApiError(kind="invalid_request", message=message, status=400))
        part = self.api.encode_summary(
            summary, _seal_summary(exchange, None if self.api.has_plain_summary else summary)
        )
        self.compaction = Compaction(summary=summary, usage=decoded.usage or Usage(), part=part)
        self.summary_exchange = None
        self._use_summary(exchange)

    def _use_summary(self, exchange: Exchange) -> None:
        """Put the summary in place of the conversation."""
        if self.compaction is not None:
            exchange.request = compacted_request(
                exchange.request, self.compaction.summary, keeps_user_messages=self.api.keeps_user_messages
            )

    # ---- responses

    @property
    def changes_response(self) -> bool:
        """Return whether a compaction or applied edits are added to the upstream's response."""
        return bool(self.applied) or (self.compaction is not None and not self.answers_with_summary)

    def local_response(self, exchange: Exchange) -> Response:
        """Return the response that holds only the compaction."""
        if self.compaction is None:
            raise AssertionError("there is no compaction to respond with")
        return self.api.compaction_response(self.compaction, exchange.request.model or "")

    def total_usage(self, reported: Usage | None) -> Usage | None:
        """Return the total usage, including the tokens of the compaction."""
        if self.compaction is None or self.api.usage_includes_compaction:
            return reported
        return add_usage(self.compaction.usage, reported)

    def compacted_body(self, exchange: Exchange) -> bytes:
        """Return the body for an endpoint that only compacts."""
        if self.compaction is None or self.api.encode_compacted is None:
            raise AssertionError("there is no compaction to respond with")
        kept = tuple(kept_user_messages(self.api.without_plan(self.request).messages))
        request = replace(self.request, messages=kept)
        return self.api.encode_compacted(request, self.compaction, exchange.client_request.created)

    def apply(self, response: Response) -> Response:
        """Return a complete response with the compaction and the applied edits."""
        return fold(self.process(unfold(response)))

    def process(self, events: Iterable[Event]) -> list[Event]:
        """Return the events of a response with the compaction and the applied edits."""
        processed: list[Event] = []
        for event in events:
            if type(event) is ResponseStart:
                self._has_usage = False
                processed += [event, *self._compaction_events()]
            elif type(event) is UsageReport:
                self._has_usage = True
                usage = event.usage if self.compaction is None else self.api.merge_usage(self.compaction, event.usage)
                processed.append(replace(event, usage=usage))
            elif type(event) is CandidateEnd:
                processed.append(self.api.report_edits(event, self.applied) if self.applied else event)
            elif type(event) is ResponseEnd and self.compaction is not None and not self._has_usage:
                processed += [UsageReport(usage=self.api.merge_usage(self.compaction, Usage())), event]
            else:
                processed.append(event if self.compaction is None else _renumber_event(event))
        return processed

    def _compaction_events(self) -> list[Event]:
        """Return the events of the compaction, a message of its own."""
        if self.compaction is None:
            return []
        part = self.compaction.part
        return [MessageStart(), PartStart(index=0, part=part), PartEnd(index=0, final=part), MessageEnd()]


def _renumber_event(event: Event) -> Event:
    """Return an event of the upstream's response, renumbered to follow the compaction's message."""
    if getattr(event, "candidate", 0):
        return event
    match event:
        case MessageStart() | MessageEnd():
            return replace(event, message=event.message + 1)
        case PartStart():
            return replace(event, index=event.index + 1, message=event.message + 1)
        case PartDelta() | PartDeltas() | PartEnd():
            return replace(event, index=event.index + 1)
        case _:
            return event


# ---- opening an exchange


def manage_context(exchange: Exchange) -> None:
    """Open the gateway's summaries in a request, and set `exchange.managed` if it requests context management."""
    codec = exchange.client_request.codec
    if (api := codec.context_management) is None:
        return
    may_hold_summary = exchange.pending_response is not None or not exchange.conversation.is_regular
    if may_hold_summary and has_compaction(exchange.request.messages):
        opened = _open_summaries(exchange, api)
        exchange.is_rewritten = opened is not exchange.request
        exchange.request = opened
    features = ("compaction",) if exchange.compacts_only else api.find_features(exchange.request)
    if features is not None:
        exchange.managed = ManagedContext(api, exchange.request, features, is_rewritten=exchange.is_rewritten)


def _open_summaries(exchange: Exchange, api: ContextManagementApi) -> Request:
    """Return the request with the gateway's last summary in place of the messages that it replaces."""
    key, wire_names = _envelope_key(exchange), exchange.client_request.codec.wire_names

    def read(part: OpaquePart) -> str | None:
        """Return the gateway's summary in a part, or None; raise `RequestRejected` if its envelope can't be opened."""
        envelope, text = api.read_summary(part)
        if envelope is None or not is_envelope(envelope):
            return None  # of the provider
        if text is not None:
            return text
        payload = None if key is None else key.open(envelope)
        if payload is None or not payload.parts or not isinstance(sealed := payload.parts[0], Text):
            raise RequestRejected(_unreadable_error(exchange, part))
        return sealed.text

    return open_compactions(exchange.request, read, wire_names, keeps_user_messages=api.keeps_user_messages)


def _unreadable_error(exchange: Exchange, unreadable: OpaquePart) -> ApiError:
    """Return the error for a gateway's compaction that can't be opened."""
    request, wire_names = exchange.request, exchange.client_request.codec.wire_names
    paths: list[SourcePath] = [
        ("messages", number, "parts", position)
        for number, holder in enumerate(request.messages)
        for position, part in enumerate(holder.parts)
        if part is unreadable
    ]
    (pointer,) = source_pointers(request, paths[0], "", wire_names)
    message = f"{pointer}: this compaction was altered, or written for another API key or by another gateway"
    return ApiError(kind="invalid_request", message=f"{message}; send the conversation instead", status=400)


def _envelope_key(exchange: Exchange) -> EnvelopeKey | None:
    """Return the key for the summaries of a tenant; None if envelopes are off."""
    keys = exchange.services.signing_keys
    return EnvelopeKey(keys, exchange.client_request.tenant, realm=_REALM) if keys else None


def _seal_summary(exchange: Exchange, summary: str | None) -> str | None:
    """Return the envelope with a summary, or an empty one as a mark; None if envelopes are off."""
    key = _envelope_key(exchange)
    return None if key is None else key.seal(EnvelopePayload(parts=() if summary is None else (Text(text=summary),)))


def _summary_context(exchange: Exchange) -> Any:
    """Return the context in which the response to a request for a summary is decoded."""
    return replace(exchange.upstream_request.context, text_recovery=None)


def _depends_on_gateway(exchange: Exchange) -> bool:
    """Return whether only the gateway can read the request, because it refers to a stored response or has envelopes."""
    continuation = exchange.request.continuation
    return (continuation is not None and continuation.id is not None) or has_envelopes(exchange.request)


def summary_error(error: SummaryFailed) -> ApiError:
    """Return the error for a response without a usable summary; the next attempt may succeed."""
    message = f"the conversation was not compacted, since {error}; try again"
    return ApiError(kind="overloaded", message=message)


def _obstacle_error(obstacle: str) -> ApiError:
    """Return the error for a conversation that can't be compacted."""
    code = "compaction_incomplete_turn" if "result" in obstacle else "compaction_nothing_to_summarize"
    message = f"the conversation can't be compacted: {obstacle}"
    return ApiError(kind="invalid_request", message=message, status=400, code=code)


# ---- providers that lack the feature


class Refusal(Struct, frozen=True):
    """A record that the provider of a model refused to manage the context."""


def refuses_management(exchange: Exchange, rejection: RequestRejected) -> bool:
    """Return whether the backend refused to manage the context. If so, remember it, and the gateway takes over."""
    managed, error = exchange.managed, rejection.error
    if managed is None or not managed.is_native or error.status not in _REFUSAL_STATUSES:
        return False
    named = any(word in f"{error.message} {error.param}" for word in ("context_management", "compact"))
    if not named and not (exchange.compacts_only and error.status in _MISSING_STATUSES):
        return False
    backend = exchange.upstream_request.backend
    key = _backend_key(backend, managed.request)
    exchange.services.unmanaged_models.put(key, Refusal(), sum(map(len, key)))
    return True


def _backend_key(backend: Backend, request: Request) -> tuple[str, str]:
    """Return the provider and model under which a refusal is remembered."""
    return backend.provider.name, backend.model or request.model or ""


def response_changes(exchange: Exchange) -> ManagedContext | None:
    """Return the managed context if it changes the response of the upstream; None otherwise."""
    managed = exchange.managed
    return managed if managed is not None and managed.changes_response else None


def prepare_delegation(exchange: Exchange) -> None:
    """Send the client's body to the provider's own `compact_path`, if the provider compacts."""
    managed, upstream_request = exchange.managed, exchange.upstream_request
    if managed is None or not (managed.is_native and exchange.compacts_only):
        return
    members = decode_members(exchange.client_request.body)
    if (model := upstream_request.backend.model) is not None:
        members["model"] = Raw(msgspec.json.encode(model))
    upstream_request.body = msgspec.json.encode(members)
    upstream_request.route = replace(upstream_request.route, path=managed.api.compact_path)


def report_management(exchange: Exchange) -> None:
    """Add a loss to the prepared request if the gateway cleared or compacted its history."""
    managed = exchange.managed
    if managed is None or managed.is_native or not (managed.applied or managed.compaction):
        return
    report, codec = LossReport(), exchange.client_request.codec
    plan = managed.api.read_plan(managed.request)
    for member in plan.members:
        report.approximated((), f"//{member}", "done by the gateway, with estimated numbers of tokens")
    upstream_request = exchange.upstream_request
    upstream_request.losses = upstream_request.losses + report.resolve(managed.request, codec.wire_names)
