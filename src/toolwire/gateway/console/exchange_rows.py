"""Exchanges as rows of the console's list."""

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from toolwire.canonical.errors import Loss
from toolwire.gateway.console.exchange_buffer import BufferedExchange, CapturedExchange
from toolwire.gateway.exchange.routing import Router
from toolwire.gateway.providers.price_book import PriceBook
from toolwire.journal.redaction import Redactor

MAX_TEXT = 300
MAX_PROMPT = 80
MAX_LOSS_TEXTS = 16
MAX_SEARCHED_LOSSES = 500
_PRODUCT = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2


class LossCounts(Struct, omit_defaults=True):
    """The number of losses by severity."""

    error: int = 0
    warning: int = 0
    info: int = 0


class ExchangeRow(Struct, omit_defaults=True, gc=False):
    """One row; times are in seconds, `cost` is in US dollars."""

    id: str
    number: int
    at: float
    path: str
    method: str = ""
    client: str = ""
    program: str = ""
    """First product of the client's `User-Agent`, such as `claude-cli`."""
    client_model: str = ""
    key: str = ""
    """Name of the key in `[keys]`."""
    provider: str = ""
    protocol: str = ""
    """Protocol of the provider."""
    model: str = ""
    status: int = 0
    streamed: bool = False
    is_open: bool = False
    failed: bool = False
    first: float | None = None
    """Time until the response began."""
    duration: float = 0.0
    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cost: float | None = None
    is_simulated: bool = False
    """Whether the built-in simulator answered, so that the cost is that of the model it simulates."""
    losses: LossCounts | None = None
    loss_texts: list[str] = []
    """Losses of the request as text, for the search: one for each field name and reason."""
    response_loss_texts: list[str] = []
    calls: dict[str, int] | None = None
    failovers: int = 0
    error: str = ""
    has_bodies: bool = False
    prompt: str = ""
    """First words of the last user message, if the bodies are captured."""


class RowBuilder:
    """Builds the rows of exchanges."""

    def __init__(self, router: Router, prices: PriceBook, key_names: Mapping[str, str], redactor: Redactor) -> None:
        """`key_names` maps each tenant to the name of its key."""
        self._redactor = redactor
        self._router = router
        self._prices = prices
        self._key_names = key_names

    async def build(self, exchanges: list[BufferedExchange]) -> list[ExchangeRow]:
        """Return the rows of exchanges, with their costs."""
        await self._prices.load({(exchange.record.provider, exchange.record.model) for exchange in exchanges})
        return [self._row(exchange) for exchange in exchanges]

    def _row(self, exchange: BufferedExchange) -> ExchangeRow:
        """Return the row of an exchange."""
        record, usage = exchange.record, exchange.record.usage
        provider = self._router.providers.get(record.provider)
        is_open = exchange.number == 0
        row = ExchangeRow(
            id=record.id,
            number=exchange.number,
            at=exchange.at,
            path=record.path[:MAX_TEXT],
            method=record.method,
            client=record.client,
            program=_program(record.user_agent),
            client_model=record.client_model[:MAX_TEXT],
            key=self._key_names.get(exchange.tenant, ""),
            provider=record.provider,
            protocol="" if provider is None else provider.protocol,
            model=record.model[:MAX_TEXT],
            status=record.status if is_open else record.status or 499,
            streamed=record.streamed,
            is_open=is_open,
            failed=record.failed,
            is_simulated=provider is not None and provider.is_simulated,
            first=None if record.responded_at is None else record.responded_at - record.started_at,
            duration=record.duration,
            calls=record.calls,
            failovers=record.failovers,
            error=record.error[:MAX_TEXT],
            has_bodies=exchange.captured is not None,
        )
        if usage is not None:
            row.input, row.output, row.cache_read = usage.input_tokens, usage.output_tokens, usage.cache_read
            row.cost = self._prices.known_price(record.provider, record.model, usage)
        if exchange.losses:
            row.losses = count_losses(exchange.losses)
            for_response = [loss for loss in exchange.losses if loss.direction == "response"]
            row.loss_texts = describe_losses([loss for loss in exchange.losses if loss.direction == "request"])
            row.response_loss_texts = describe_losses(for_response)
        if (captured := exchange.captured) is not None:
            if captured.prompt is None:
                captured.prompt = self._first_words(captured)
            row.prompt = captured.prompt
        return row

    def _first_words(self, captured: CapturedExchange) -> str:
        """Return the beginning of the last user message, cut only after its secrets were replaced."""
        words = " ".join(self._redactor.redact_text(captured.user_text).split())
        return words if len(words) <= MAX_PROMPT else f"{words[: MAX_PROMPT - 1]}…"


def _program(user_agent: bytes) -> str:
    """Return the name of the first product in a `User-Agent`; empty if there is none."""
    product = _PRODUCT.match(user_agent)
    return "" if product is None else product[0].decode()


def count_losses(losses: list[Loss]) -> LossCounts:
    """Return the number of losses by severity."""
    counts = LossCounts()
    for loss in losses:
        if loss.severity == "error":
            counts.error += 1
        elif loss.severity == "warning":
            counts.warning += 1
        else:
            counts.info += 1
    return counts


def describe_losses(losses: list[Loss]) -> list[str]:
    """Return one text for each field name and reason, so that a long conversation repeats none."""
    texts: dict[tuple[str, str], str] = {}
    for loss in losses[:MAX_SEARCHED_LOSSES]:
        is_short = len(loss.path) + len(loss.target or "") <= MAX_TEXT  # what a client chose is not kept for long
        describe = _describe_loss_cached if is_short else _describe_loss
        field_name, text = describe(loss)
        if (field_name, loss.reason) not in texts:
            texts[field_name, loss.reason] = text
            if len(texts) == MAX_LOSS_TEXTS:
                break
    return list(texts.values())


def _describe_loss(loss: Loss) -> tuple[str, str]:
    """Return the name of the lost field, and the loss as text."""
    names = reversed((loss.target or loss.path).split("/"))
    return next((name for name in names if not name.isdigit()), ""), str(loss)[:MAX_TEXT]


_describe_loss_cached = lru_cache(maxsize=2048)(_describe_loss)
