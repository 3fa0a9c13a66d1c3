"""File descriptors: as many as the system allows, and limits that fit into them."""

import contextlib
import resource

from msgspec.structs import replace

from .config import LimitsSection

_RESERVE = 128  # for files, databases, programs, pooled connections, and clients that are being refused
_STREAMS = 0.8  # of all connections, so that a client whose stream is refused is told so in its own protocol
_MOST = 1 << 20  # where the system names no limit


def raise_limit() -> int:
    """Raise the soft limit of open files (RLIMIT_NOFILE) to the hard one. Return the limit that holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # some systems have a lower limit that they do not name
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft


def fit(limits: LimitsSection, descriptors: int) -> tuple[LimitsSection, str | None]:
    """Lower connections and streams to what the descriptors allow. Return the limits, and what to say about them."""
    room = descriptors - min(_RESERVE, descriptors // 4)
    connections = max(1, room // 2)  # as many of clients as to upstreams
    streams = max(1, int(connections * _STREAMS))
    wanted = connections if limits.connections is None else limits.connections
    fitted = replace(limits, connections=min(connections, wanted), streams=min(streams, limits.streams))
    lowered = [
        f"limits.{name} is {most} instead of {before}"
        for name, before, most in (("connections", wanted, connections), ("streams", limits.streams, streams))
        if before > most
    ]
    why = f"this process may have {descriptors} open files; raise `ulimit -n`"
    return fitted, f"{' and '.join(lowered)}: {why}" if lowered else None
