"""TODO."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = ROOT / ".." / "shared"


def skip_without(path: str) -> pytest.MarkDecorator:
    """Skip a test, visibly, where what it is compared with does not lie beside the project."""
    return pytest.mark.skipif(not (SHARED / path).exists(), reason=f"{path} does not lie beside the project")
