"""These tests drive a real Chromium and fail without one."""

import pytest

from toolwire.runtime.tools.browser import ChromiumNotFound, find_chromium


def pytest_sessionstart(session: pytest.Session) -> None:
    try:
        find_chromium(None)
    except ChromiumNotFound as missing:
        pytest.exit(str(missing), returncode=1)
