"""An error on its way to the client."""

from toolwire.canonical.errors import ApiError


class Refused(Exception):
    """An error to tell the client, in its own protocol."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error
