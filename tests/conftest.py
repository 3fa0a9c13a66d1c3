"""How the tests are run."""

import gc
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import certifi
import pytest
from hypothesis import HealthCheck, settings

from tests.support import collection
from tests.support.clock import Clock

# Deadlines of single examples, and the check that drawing them is fast, would fail on a busy machine.
settings.register_profile("toolwire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("toolwire")

# The collector would go again and again through the types of five SDKs and 15,000 tests, none of which are garbage.
gc.set_threshold(20_000, 20, 20)

# Each client of an SDK reads the certificates of all authorities, which takes longer than what most tests do with it.
# Nothing here goes beyond the loopback: one of them is enough.
_END = "-----END CERTIFICATE-----\n"
_FOLDER = TemporaryDirectory(prefix="toolwire-tests-", ignore_cleanup_errors=True)
_AUTHORITIES = Path(_FOLDER.name) / "authorities.pem"
_AUTHORITIES.write_text(Path(certifi.where()).read_text(encoding="utf-8").partition(_END)[0] + _END, encoding="utf-8")
os.environ["SSL_CERT_FILE"] = str(_AUTHORITIES)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three for two cores: some tests wait for processes. Each worker collects all tests, which takes ten seconds."""
    return max(2, 3 * (os.cpu_count() or 1) // 2)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    collection.record_collected(item.nodeid for item in session.items)
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    _FOLDER.cleanup()
