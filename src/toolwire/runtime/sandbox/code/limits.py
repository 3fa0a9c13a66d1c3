"""What bounds a program. The sandbox itself has no bounds."""

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Bytes of memory, seconds of computing, calls of tools and questions about them, characters of code and of what
    it prints. `at_once`: how many calls are carried out at the same time."""

    memory: int = 64 * 1024 * 1024
    seconds: float = 10.0
    calls: int = 200
    code: int = 100_000
    output: int = 20_000
    at_once: int = 8
