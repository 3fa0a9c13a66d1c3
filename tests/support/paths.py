"""Paths of the project and of the shared data beside it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = ROOT / ".." / "shared"


def skip_without(path: str) -> pytest.MarkDecorator:
    """Skip a test if its reference data is not beside the project."""
    return pytest.mark.skipif(not (SHARED / path).exists(), reason=f"{path} does not lie beside the project")
