"""One exchange: a client's request, the backend that serves it, and the request sent there.

An `Exchange` is created when a request has been decoded and routed. Preparation, sending and responding are functions
over it, in `preparation`, `sender` and `response`; `dispatcher` calls them in order. Everything that outlives an
exchange is in its `services`.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from toolwire.canonical.errors import ApiError, Loss, Strictness
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.envelope import EnvelopeKey
from toolwire.codec.interface import Codec, Route
from toolwire.codec.memo import BoundedMemo, estimate_entry_size
from toolwire.gateway.config import CompactionSection, LimitsSection
from toolwire.gateway.emulation.plan import Emulator
from toolwire.gateway.emulation.prompted_tools import RefusedTools
from toolwire.gateway.exchange.breakers import Breakers
from toolwire.gateway.exchange.call_checks import CallChecker, CallOutcome
from toolwire.gateway.exchange.conversation_memo import Conversation, ConversationMemo
from toolwire.gateway.exchange.refused_settings import RefusedSettings
from toolwire.gateway.exchange.routing import Backend, RouteMatch, Router
from toolwire.gateway.exchange.sender import UpstreamRequest, UpstreamSender
from toolwire.gateway.keys.client_key import ClientKey
from toolwire.gateway.limits import BodyExecutor
from toolwire.gateway.providers.context_size import ContextSizes
from toolwire.gateway.providers.price_book import PriceBook
from toolwire.gateway.rounds.route_tools import RouteToolsets
from toolwire.gateway.state.background_jobs import BackgroundJob, FrameLogReader
from toolwire.gateway.state.conversations import ChannelState, ConversationState, PendingResponse
from toolwire.gateway.state.signatures import DROPPING_CLIENTS, SignatureObserver
from toolwire.gateway.state.withheld_turns import TurnKey
from toolwire.journal.redaction import Redactor
from toolwire.upstream.models.catalog import ModelCatalog

if TYPE_CHECKING:
    from toolwire.gateway.exchange.context_management import ManagedContext, Refusal
    from toolwire.gateway.exchange.response import StreamingResponse


class ClientRequest(Struct, frozen=True, kw_only=True):
    """A request as received from the client."""

    codec: Codec
    body: bytes
    route: Route
    tenant: str
    key: ClientKey | None = None
    """The client's key, with its permissions and limits; None if it has none."""
    strict: Strictness = False
    created: int = 0
    channel: ChannelState | None = None
    """History of the WebSocket channel that carried the request."""
    compacts: bool = False
    """Whether it came to an endpoint that only compacts."""
    losses: list[Loss] = []
    """Changes that decoding the body required."""
    credentials: dict[str, str] = {}
    """The client's own keys for providers, by header."""

    def restrict(self, requested: str | None, match: RouteMatch) -> RouteMatch:
        """Return the match with the backends that the client's key may use."""
        return match if self.key is None else self.key.restrict(requested, match)

    def is_streaming(self, request: Request) -> bool:
        """Return whether the client wants a stream: as requested, or by its protocol's default."""
        return self.codec.surface.streams_by_default if request.stream is None else request.stream


class BufferedResponse(Struct):
    """A complete response body."""

    body: bytes
    losses: list[Loss]
    summary: Response | None = None
    """Ids, stop reasons and usage, possibly without content."""
    job: BackgroundJob | None = None
    """Set while a background job is still producing the response."""


class ExchangeObserver(Struct):
    """Follows one exchange; log, metrics, loss reports and journal learn of it here. By default it does nothing."""

    async def reserve(self, request: Request, backends: Sequence[Backend], body: bytes) -> None:
        """Reserve what the request may use of the limits of its key, or raise `RequestRejected`."""

    def on_backend(self, backend: Backend) -> None:
        """Note the backend that is tried next."""

    def on_model(self, requested: str) -> None:
        """Note the model that the client requests."""

    def on_default_model(self, requested: str) -> None:
        """Note that a default model answers in place of an unknown one."""

    def on_failover(self, backend: Backend, error: ApiError) -> None:
        """Note the failure of a backend after which the next one is tried."""

    def on_request_sent(self, upstream_request: UpstreamRequest) -> None:
        """Note the request that is about to be sent, and its losses."""

    def on_refusal(self, losses: list[Loss]) -> None:
        """Note the losses for which the request is refused instead of being sent."""

    def on_settings_refused(self, backend: Backend, model: str, settings: list[str]) -> None:
        """Note optional settings that the backend refused, so that the request is sent once more without them."""

    def on_call(self, backend: Backend, outcome: CallOutcome) -> None:
        """Note a call of the model, and whether it is valid."""

    def on_response(self, response: "BufferedResponse | StreamingResponse[bytes] | FrameLogReader") -> None:
        """Note the response, of which the client has received nothing yet."""


class ExchangeServices(Struct, frozen=True, kw_only=True):
    """Everything that exchanges share and that outlives them."""

    router: Router
    sender: UpstreamSender
    catalog: ModelCatalog
    prices: PriceBook
    context_sizes: ContextSizes
    breakers: Breakers
    limits: LimitsSection
    uncounted_size: int
    """Bytes up to which a body can exceed no limit on its contents."""
    signing_keys: list[bytes]
    """Keys that sign envelopes; empty if envelopes are off."""
    conversation_state: ConversationState
    redactor: Redactor
    route_toolsets: RouteToolsets
    emulator: Emulator
    refused_tools: RefusedTools
    body_executor: BodyExecutor
    envelope_keys: BoundedMemo[tuple[str, str, str | None], EnvelopeKey]
    conversation_memo: ConversationMemo
    refused_settings: RefusedSettings
    compaction: CompactionSection
    unmanaged_models: "BoundedMemo[tuple[str, str], Refusal]"
    """Models whose provider refused to manage the context, by provider and model."""

    def envelope_key(self, tenant: str, backend: Backend) -> EnvelopeKey | None:
        """Return the cached key that signs envelopes for this tenant and backend; None if envelopes are off."""
        if not self.signing_keys:
            return None
        key = (tenant, backend.provider.name, backend.model)
        if (cached := self.envelope_keys.get(key)) is not None:
            return cached
        account, model = backend.signature_scope
        envelope_key = EnvelopeKey(self.signing_keys, tenant, realm=account, model=model)
        self.envelope_keys.put(key, envelope_key, estimate_entry_size(*key))
        return envelope_key


class Exchange:
    """One request of a client, on its way to a response."""

    __slots__ = (
        "_has_queued_turn",
        "client_request",
        "compacts_only",
        "conversation",
        "is_heavy",
        "is_rewritten",
        "is_streaming",
        "managed",
        "observer",
        "pending_response",
        "request",
        "route_match",
        "services",
        "signatures",
        "upstream_request",
    )

    def __init__(
        self,
        services: ExchangeServices,
        client_request: ClientRequest,
        request: Request,
        route_match: RouteMatch,
        observer: ExchangeObserver,
        *,
        conversation: Conversation | None = None,
        is_heavy: bool = False,
    ) -> None:
        self.services = services
        self.client_request = client_request
        self.request = request
        """The decoded request; with its history, if the gateway stores that."""

        self.route_match = route_match
        self.observer = observer
        self.conversation = conversation or Conversation(services.conversation_memo)
        """Earlier requests of the conversation, from which this one is translated."""

        self.is_heavy = is_heavy
        """Whether the request is prepared in a thread."""

        self.is_streaming = client_request.is_streaming(request)
        self.pending_response: PendingResponse | None = None
        """Set if the response is stored under an id."""

        self.managed: ManagedContext | None = None
        """The context management that the request asks for; None if it asks for none."""

        self.is_rewritten = False
        """Whether the request differs from the body that the client sent."""

        self.compacts_only = False
        """Whether the request came to an endpoint that only compacts."""

        self.signatures: SignatureObserver | None = None
        """The observer of the response's signatures, once one was needed."""

        self._has_queued_turn = False

        self.upstream_request: UpstreamRequest
        """The request for the backend that is tried; unset until it is prepared."""

    @property
    def has_same_protocol(self) -> bool:
        """Return whether the backend speaks the client's protocol."""
        return self.client_request.codec is self.upstream_request.codec

    def call_checker(self) -> CallChecker:
        """Return the checker for the calls of the response."""
        upstream_request = self.upstream_request
        return CallChecker(
            self.request, upstream_request.codec, partial(self.observer.on_call, upstream_request.backend)
        )

    @property
    def strict(self) -> Strictness:
        """Return the losses to refuse: the stricter of what the client requests and the route configures."""
        requested, configured = self.client_request.strict, self.route_match.options.strict
        return True in (requested, configured) or requested or configured

    @property
    def stores_response(self) -> bool:
        """Return whether the complete response, or signatures in it, must be stored."""
        return self.pending_response is not None or self.upstream_request.context.withheld is not None

    def store_response(self, response: Response) -> None:
        """Store a complete response, and the turn with the signatures withheld from the client."""
        upstream_request, state = self.upstream_request, self.services.conversation_state
        client, context = self.client_request.codec, upstream_request.context
        if context.withheld is not None:
            store_turn = partial(
                state.withheld_turns.store,
                context.withheld,
                response,
                client,
                context,
                self.turn_key(upstream_request.backend),
            )
            if state.store.is_shared:
                self._has_queued_turn = store_turn()  # another replica may get the client's next request
            else:
                asyncio.get_running_loop().call_soon(store_turn)  # not urgent
        if self.pending_response is not None:
            self.pending_response.complete(client.encode_response(response, context).to_bytes())

    @property
    def waits_for_state(self) -> bool:
        """Return whether frames may have to wait until rows are stored that other replicas need."""
        return self.signatures is not None and self.services.conversation_state.store.is_shared

    async def flush_state(self) -> None:
        """Wait until the rows queued for this response are stored, if another replica may get the next request."""
        has_signatures = self.signatures is not None and self.signatures.take_recorded()
        if has_signatures or self._has_queued_turn:
            self._has_queued_turn = False
            await self.services.conversation_state.store.flush()

    def turn_key(self, backend: Backend) -> TurnKey:
        """Return the key under which to store turns of `backend` whose signatures this client does not receive."""
        client_request = self.client_request
        return TurnKey(client_request.tenant, client_request.codec.name, *backend.signature_scope)

    def signature_observer(self) -> SignatureObserver | None:
        """Return an observer of the signatures that the client receives; None if none of them has to be recorded."""
        upstream_request, client = self.upstream_request, self.client_request.codec
        client_drops = client.name in DROPPING_CLIENTS
        if client.name == "ollama" or not (
            self.has_same_protocol or client_drops or upstream_request.context.envelope_key is None
        ):
            return None
        signatures = self.services.conversation_state.signatures
        issuer = upstream_request.backend.issuer
        self.signatures = SignatureObserver(signatures, self.client_request.tenant, issuer, client_drops=client_drops)
        return self.signatures
