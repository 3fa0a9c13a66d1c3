"""How much a command may take."""

from msgspec import Struct

MEBIBYTE = 1024 * 1024


class Limits(Struct, frozen=True, kw_only=True):
    """`output`: bytes that are kept of each of the two streams, of its head and its tail. `flood`: bytes after which it
    is stopped. `memory` is for all its processes together, and for each. `scratch`: bytes of each of its temporary
    folders. `largest`: bytes of one file that it writes."""

    seconds: float = 120.0
    output: int = 16 * 1024
    flood: int = 64 * MEBIBYTE
    memory: int = 4096 * MEBIBYTE
    processes: int = 256
    scratch: int = 512 * MEBIBYTE
    largest: int = 4096 * MEBIBYTE

    def wrapped(self, command: list[str], *, counted: bool) -> list[str]:
        """Set by a shell in the child itself, so that they hold from its first process on. Processes are counted for
        the whole user where there is no namespace, so the kernel can bound them only where there is one."""
        kilobytes = self.memory // 1024
        # -p is dash's word for processes, and -u bash's; a limit that a shell or a system does not know is left out.
        # Threads count with the kernel, too.
        tasks = 4 * self.processes
        many = f"ulimit -p {tasks} 2>/dev/null || ulimit -u {tasks} 2>/dev/null;" if counted else ""
        script = (
            f"ulimit -c 0 2>/dev/null; ulimit -d {kilobytes} 2>/dev/null; ulimit -f {self.largest // 512} 2>/dev/null;"
            f' {many} exec "$@"'
        )
        return ["/bin/sh", "-c", script, "sh", *command]
