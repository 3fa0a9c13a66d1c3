"""An error on its way to the client."""

from typing import Literal

from toolwire.canonical.errors import ApiError

Attempt = Literal["rejected", "unprocessed", "unknown"]
"""What is known of a request that failed upstream: the provider refused it, did no work on it, or may have worked on
it."""


class Refused(Exception):
    """An error to tell the client, in its own protocol. `failover`: another provider of the route may be asked."""

    def __init__(self, error: ApiError, *, attempt: Attempt = "rejected", failover: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.attempt: Attempt = attempt
        self.failover = failover
