"""The domains that web tools may use: only some, or all but some; subdomains belong to their domain."""

from urllib.parse import urlsplit

from msgspec import Struct

from toolwire.runtime.tool import ToolError


class DomainFilter(Struct, frozen=True):
    """Allowed and blocked domains; without allowed ones, all that are not blocked."""

    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    def permits(self, url: str) -> bool:
        """Return True if the domain of a URL may be used."""
        try:
            host = (urlsplit(url).hostname or "").rstrip(".")
        except ValueError:
            return False
        if any(_is_within(host, domain) for domain in self.blocked):
            return False
        return not self.allowed or any(_is_within(host, domain) for domain in self.allowed)

    def check(self, url: str) -> None:
        """Raise `ToolError` if the domain of a URL may not be used."""
        if not self.permits(url):
            raise ToolError(f"the domain of {url[:200]} is not allowed", "domain")


def _is_within(host: str, domain: str) -> bool:
    """Return True for the domain itself and its subdomains."""
    domain = domain.lower().strip(".")
    return host == domain or host.endswith(f".{domain}")
