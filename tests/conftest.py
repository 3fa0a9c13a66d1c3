"""Configuration of the test run."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import certifi
import pytest
from hypothesis import HealthCheck, settings

from tests.support import collection
from tests.support.clock import Clock
from tests.support.postgres import PostgresServer, run_postgres
from tests.support.watchdog import Watchdog

# Deadlines of single examples, and the health check for slow draws, would fail on a busy machine.
settings.register_profile("toolwire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("toolwire")

# The garbage collector would repeatedly scan the types of five SDKs and 15,000 tests, none of which are garbage.
gc.set_threshold(20_000, 20, 20)

# Each SDK client loads the certificates of all authorities, which takes longer than most tests.
# Tests only use loopback: one certificate is enough.
_END = "-----END CERTIFICATE-----\n"
_FOLDER = TemporaryDirectory(prefix="toolwire-tests-", ignore_cleanup_errors=True)
_AUTHORITIES = Path(_FOLDER.name) / "authorities.pem"
_AUTHORITIES.write_text(Path(certifi.where()).read_text(encoding="utf-8").partition(_END)[0] + _END, encoding="utf-8")
os.environ["SSL_CERT_FILE"] = str(_AUTHORITIES)

# A database waits for the disk at each commit. Files in memory outlive the processes that tests kill. They are used
# if there is room for them, and if programs can be run from there (which few containers allow).
_MEMORY = Path("/dev/shm")
if (
    os.access(_MEMORY, os.W_OK)
    and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC
    and shutil.disk_usage(_MEMORY).free > 1 << 30
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# Not the configuration and the files of the person who runs the tests.
os.environ["XDG_CONFIG_HOME"] = f"{_FOLDER.name}/config"
os.environ["XDG_STATE_HOME"] = f"{_FOLDER.name}/state"
for variable in ("TOOLWIRE_CONFIG", "TOOLWIRE_MODEL"):
    os.environ.pop(variable, None)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Watchdog())


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A private PostgreSQL server."""
    if "TOOLWIRE_POSTGRES" not in os.environ:
        pytest.skip("needs PostgreSQL: make test-postgres")
    with run_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of a new, empty database."""
    return postgres_server.create_database(f"test_{uuid4().hex}")


@pytest.fixture
def private_postgres(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A PostgreSQL server that the test may stop."""
    del postgres_server  # skips the test where there are no programs
    with run_postgres() as server:
        yield server


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use three workers for two cores: some tests wait for processes, and collection takes ten seconds per worker."""
    return max(2, 3 * (os.cpu_count() or 1) // 2)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    collection.record_collected(item.nodeid for item in session.items)
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    gc.collect()
    gc.freeze()  # pytest collects garbage five times at its end


def pytest_unconfigure() -> None:
    _FOLDER.cleanup()
