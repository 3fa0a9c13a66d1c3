"""Pytest fixtures for tests of agents.

Add them to `conftest.py`:

    pytest_plugins = ["toolwire.pytest_plugin"]

It is not registered as an entry point: pytest would then rewrite the assertions of all modules of toolwire, also in the
tests of people who don't use the fixtures.
"""

from collections.abc import Iterator
from typing import Protocol

import pytest

from toolwire.runtime.model import ProviderAccess
from toolwire.testing import ScriptedModel, Turn


class ScriptModel(Protocol):
    """Returns a model that plays the turns of a script."""

    def __call__(self, *turns: Turn, protocol: str | None = None) -> ScriptedModel:
        """Return a model that plays these turns."""
        ...


@pytest.fixture
def scripted_model() -> Iterator[ScriptModel]:
    """Return a function that creates a `ScriptedModel`; the test fails at its end if a turn was not played."""
    models = list[ScriptedModel]()

    def create(*turns: Turn, protocol: str | None = None) -> ScriptedModel:
        """Return a model that plays these turns."""
        models.append(ScriptedModel(*turns, protocol=protocol))
        return models[-1]

    yield create
    for model in models:
        if model.unplayed:
            total = model.unplayed + len(model.requests)
            pytest.fail(f"{model.unplayed} of {total} turns of the script were not played")


@pytest.fixture
def no_model_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every request to a provider an error. Scripted, recorded and simulated models still respond."""
    monkeypatch.setattr(ProviderAccess, "allowed", False)
