"""Settings that providers refused, remembered by provider and model while the process lives."""

from toolwire.codec.hosts.refusals import LIMIT_REFUSALS, Refusal
from toolwire.codec.memo import BoundedMemo, estimate_entry_size
from toolwire.gateway.exchange.routing import Backend


class RefusalMemo:
    """The settings that each model of a provider refused; the number and size of entries are limited."""

    def __init__(self) -> None:
        self._refusals: BoundedMemo[tuple[str, str], tuple[Refusal, ...]] = BoundedMemo()

    def find(self, backend: Backend, model: str | None) -> tuple[Refusal, ...]:
        """Return the settings that a backend refused; the requested `model` counts if the backend sets none."""
        return self._refusals.get((backend.provider.name, backend.model or model or ""), ())

    def learn(self, backend: Backend, model: str | None, refusals: tuple[Refusal, ...]) -> None:
        """Remember refused settings."""
        known = self.find(backend, model)
        merged = tuple(dict.fromkeys((*known, *refusals)))[:LIMIT_REFUSALS]
        if merged != known:
            key = (backend.provider.name, backend.model or model or "")
            self._refusals.put(key, merged, estimate_entry_size(*key, *[refusal.member for refusal in merged]))
