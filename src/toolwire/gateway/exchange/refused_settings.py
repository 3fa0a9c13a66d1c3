"""Settings that providers refused, remembered by provider and model while the process lives."""

from toolwire.codec.hosts.refusals import LIMIT_REFUSALS, RefusedSetting
from toolwire.codec.memo import BoundedMemo, estimate_entry_size
from toolwire.gateway.exchange.routing import Backend


class RefusedSettings:
    """The settings that each model of a provider refused; the number and size of entries are limited."""

    def __init__(self) -> None:
        self._refusals: BoundedMemo[tuple[str, str], tuple[RefusedSetting, ...]] = BoundedMemo()

    def find(self, backend: Backend, model: str | None) -> tuple[RefusedSetting, ...]:
        """Return the settings that a backend refused; the requested `model` counts if the backend sets none."""
        return self._refusals.get((backend.provider.name, backend.model or model or ""), ())

    def learn(self, backend: Backend, model: str | None, refusals: tuple[RefusedSetting, ...]) -> None:
        """Remember refused settings."""
        known = self.find(backend, model)
        merged = tuple(dict.fromkeys((*known, *refusals)))[:LIMIT_REFUSALS]
        if merged != known:
            key = (backend.provider.name, backend.model or model or "")
            self._refusals.put(key, merged, estimate_entry_size(*key, *[refusal.member for refusal in merged]))
