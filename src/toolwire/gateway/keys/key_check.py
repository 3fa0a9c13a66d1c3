"""Check `[keys]` for settings with which the gateway refuses every request of a key."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from msgspec import Struct

from toolwire.gateway.config import Config
from toolwire.gateway.keys.client_key import ClientKey
from toolwire.installation import has_extra
from toolwire.upstream.models.price_data import price_hint


class RefusedKey(Struct, frozen=True):
    """A key of the configuration that can't be used, for all models or for some."""

    setting: str
    """The setting that is the cause, such as `keys.alice.expires`."""
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.problem}; {self.advice}"


def find_refused_keys(config: Config, providers: Iterable[str]) -> Iterator[RefusedKey]:
    """Yield the keys that have expired, whose models match nothing, or whose limit in dollars needs unknown prices."""
    names = [*(route.match for route in config.routes), *config.aliases]
    has_prices = has_extra("prices") or any(info.prices is not None for info in config.models.values())
    for name, section in config.keys.items():
        if ClientKey(name, section).is_expired():
            yield RefusedKey(f"keys.{name}.expires", f"the key expired on {section.expires}", "set a later day")
        for pattern in section.models:
            if not _may_match(pattern, names, providers):
                problem = f"{pattern!r} matches no route, no alias and no provider"
                yield RefusedKey(f"keys.{name}.models", problem, "use a name of [[routes]] or PROVIDER/MODEL")
        if section.limits_money and section.unpriced == "refuse" and not has_prices:
            problem = "a limit in dollars refuses models whose price is unknown, and no prices are set"
            yield RefusedKey(f"keys.{name}", problem, price_hint("PROVIDER/MODEL"))


def _may_match(pattern: str, names: Iterable[str], providers: Iterable[str]) -> bool:
    """Return False if a pattern names a provider that does not exist; a name without a slash may be any model's."""
    provider, slash, _ = pattern.partition("/")
    if not slash or any(fnmatchcase(name, pattern) for name in names):
        return True
    return "*" in provider or any(fnmatchcase(name, provider) for name in providers)
