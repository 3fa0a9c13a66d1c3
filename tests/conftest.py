"""How the tests are run."""

import gc
import os

import pytest

# The collector would go again and again through the types of five SDKs and 15,000 tests, none of which are garbage.
gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: many tests wait for servers and processes more than they compute."""
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
