"""`make test-sandbox`: run the bubblewrap tests on a machine that has bubblewrap and allows namespaces."""

import sys
from pathlib import Path

import click
import pytest

from toolwire.runtime.sandbox.bubblewrap import detect_bubblewrap

SUITE = Path(__file__).with_name("confinement.py")


def main() -> int:
    if why_not := detect_bubblewrap().unavailable_reason:
        click.echo(f"nothing was tested: {why_not}", err=True)
        return 1
    return int(pytest.main([str(SUITE), "-p", "no:xdist"]))


if __name__ == "__main__":
    sys.exit(main())
