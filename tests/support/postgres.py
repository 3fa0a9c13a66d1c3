"""A private PostgreSQL server for tests, in a temporary folder; it needs the programs of PostgreSQL."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
"""The parameter of tests that run with each database; they use the fixture `postgres_url`."""

_UNPRIVILEGED_USER = "nobody"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "32MB",
}


def find_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs; None if they are not installed."""
    if (program := shutil.which("pg_ctl")) is not None:
        return Path(program).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin/"), default=None)


class PostgresServer:
    """A server with one database, `toolwire`, whose user needs no password."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.port = _free_port()
        self._folder = folder
        self._programs = programs
        self._data = folder / "data"
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(folder, _UNPRIVILEGED_USER)
        self._run("initdb", "--auth=trust", "--username=toolwire", "--no-sync", "--encoding=UTF8", str(self._data))
        self.start()
        self._run("createdb", "--host=127.0.0.1", f"--port={self.port}", "--username=toolwire", "toolwire")

    @property
    def url(self) -> str:
        """The URL of the database `toolwire`."""
        return self.url_of("toolwire")

    def url_of(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://toolwire@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Create an empty database, and return its URL."""
        self._run("createdb", "--host=127.0.0.1", f"--port={self.port}", "--username=toolwire", name)
        return self.url_of(name)

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        options = f"-p {self.port} -k {self._folder} {settings}"
        self._run(
            "pg_ctl", "--pgdata", str(self._data), "--log", str(self._folder / "log"), "-w", "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; `immediate` is like a crash."""
        self._run("pg_ctl", "--pgdata", str(self._data), "-w", "-m", mode, "stop")

    def _run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs, as an unprivileged user if this one is root."""
        command: Sequence[str] = [str(self._programs / program), *arguments]
        user = _UNPRIVILEGED_USER if os.geteuid() == 0 else getpass.getuser()
        result = subprocess.run(
            command,
            user=user if os.geteuid() == 0 else None,
            cwd=self._folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "USER": user},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
        if result.returncode != 0:
            raise RuntimeError(f"{program} failed: {result.stderr.strip()}")


async def cut_connections(url: str) -> None:
    """End all sessions of toolwire, as an administrator or a failover does."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'toolwire' AND datname = current_database()"
        )


def _free_port() -> int:
    """Return a port that no server listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def run_postgres() -> Iterator[PostgresServer]:
    """Run a private server."""
    programs = find_programs()
    if programs is None:
        raise RuntimeError("PostgreSQL is not installed: there is no program pg_ctl")
    with tempfile.TemporaryDirectory(prefix="toolwire-postgres-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder), programs)
        try:
            yield server
        finally:
            server.stop("immediate")
