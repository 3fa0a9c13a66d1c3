"""How the tests are run."""

import os

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: many tests wait for servers and processes more than they compute."""
    return 2 * (os.cpu_count() or 1)
