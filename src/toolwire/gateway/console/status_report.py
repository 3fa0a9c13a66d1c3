"""The status of the gateway: providers with circuit breakers and call quality, limits in use, and memory."""

import re
import time

from msgspec import Struct

from toolwire.codec.hosts.compatible import COMPATIBLE
from toolwire.gateway.config import Config
from toolwire.gateway.console.exchange_buffer import ExchangeBuffer
from toolwire.gateway.exchange.exchange import ExchangeServices
from toolwire.gateway.observability.recorder import Observability

_SAMPLE = re.compile(
    r"toolwire_(breakers_open|calls_total|failovers_total|refused_settings_total|requests_total|tokens_total)\{(.*)\}"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class ProviderStatus(Struct, omit_defaults=True):
    """One provider."""

    name: str
    protocol: str
    address: str
    host: str = ""
    default_model: str = ""
    open_breakers: list[str] = []
    """Models that at least one worker skips, because their circuit breaker is open."""
    requests: int = 0
    failed: int = 0
    input: int = 0
    output: int = 0
    calls: dict[str, int] = {}
    failovers: dict[str, int] = {}
    refused_settings: dict[str, int] = {}


def report_providers(services: ExchangeServices, observability: Observability) -> list[ProviderStatus]:
    """Return the status of each provider, summed over all workers since the start."""
    totals = observability.metrics.totals()
    reports = {}
    for provider in services.router.providers.values():
        profile = provider.profile(provider.default_model)
        reports[provider.name] = ProviderStatus(
            provider.name,
            provider.protocol,
            f"{provider.origin.scheme}://{provider.origin.authority}",
            host="" if profile.name == COMPATIBLE.name else profile.title,
            default_model=provider.default_model or "",
        )
    for sample, value in totals.items():
        match = _SAMPLE.fullmatch(sample)
        labels = dict(_LABEL.findall(match[2])) if match else {}
        if match and (report := reports.get(labels.get("provider", ""))) is not None:
            _add_sample(report, match[1], labels, round(value))
    return list(reports.values())


def _add_sample(report: ProviderStatus, family: str, labels: dict[str, str], value: int) -> None:
    """Add a sample of a metric to a report."""
    match family:
        case "breakers_open" if value:
            report.open_breakers.append(labels.get("model", ""))
        case "breakers_open":
            pass
        case "requests_total":
            report.requests += value
            if int(labels.get("status", "0")) >= 400:
                report.failed += value
        case "tokens_total" if labels.get("kind") == "input":
            report.input += value
        case "tokens_total":
            report.output += value
        case "calls_total":
            report.calls[labels["outcome"]] = report.calls.get(labels["outcome"], 0) + value
        case "failovers_total":
            report.failovers[labels["reason"]] = report.failovers.get(labels["reason"], 0) + value
        case _:
            setting = labels.get("setting", "")
            report.refused_settings[setting] = report.refused_settings.get(setting, 0) + value


class LimitStatus(Struct, omit_defaults=True):
    """The current usage of a limit."""

    name: str
    used: float
    limit: float | None = None
    unit: str = ""
    dropped: int | None = None


class PeerStatus(Struct):
    """The part of another worker's status that is summed."""

    limits: list[LimitStatus] = []


def report_limits(
    config: Config, services: ExchangeServices, observability: Observability, buffer: ExchangeBuffer
) -> list[LimitStatus]:
    """Return the current usage of each limit in this worker."""
    journal = None if observability.recorder is None else observability.recorder.journal
    reports = [
        LimitStatus("streams", observability.metrics.open_streams, services.limits.streams),
        LimitStatus("exchanges in memory", len(buffer), config.console.exchanges),
        LimitStatus("bodies in memory", buffer.used_bytes, config.console.size, unit="bytes"),
    ]
    if journal is not None:
        reports.append(LimitStatus("journal records", journal.written_count, dropped=journal.dropped_count))
    return reports


def sum_limits(reports: list[list[LimitStatus]]) -> list[LimitStatus]:
    """Return the usage and the limits of several workers together."""
    sums: dict[str, LimitStatus] = {}
    for report in (limit for worker in reports for limit in worker):
        if (known := sums.get(report.name)) is None:
            sums[report.name] = report
            continue
        known.used += report.used
        known.limit = None if known.limit is None or report.limit is None else known.limit + report.limit
        known.dropped = None if known.dropped is None or report.dropped is None else known.dropped + report.dropped
    return list(sums.values())


class Uptime:
    """The time since the start."""

    def __init__(self) -> None:
        self._started_at = time.monotonic()

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._started_at
