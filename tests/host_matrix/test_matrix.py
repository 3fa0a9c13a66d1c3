"""Every host accepts every recorded request of the agents, complete, and every change is reported."""

from collections.abc import Iterator

import pytest

from tests.host_matrix.cells import TARGETS, Target, has_search, recordings_for, run_cells, serve_matrix
from tests.host_matrix.page import PAGE, accepted_cells, render_page
from tests.support.gateway.setup import GatewaySetup


@pytest.fixture(scope="module")
def setup() -> Iterator[GatewaySetup]:
    with serve_matrix() as serving:
        yield serving


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_hosts_accept_all_requests_of_agents(setup: GatewaySetup, target: Target) -> None:
    cells = [cell for recording in recordings_for(target) for cell in run_cells(setup, target, recording)]
    assert len(cells) >= 2 * 10
    faults = [
        (cell.recording, cell.turn, cell.refusal, cell.losses, cell.unreported)
        for cell in cells
        if not cell.accepted or cell.unreported
    ]
    assert faults == []
    assert any(cell.is_declined for cell in cells) != has_search(target)


def test_strict_hosts_refuse_the_dialect_of_openai() -> None:
    """The simulators are not lenient: without profiles, most hosts refuse the first request of Claude Code."""
    refusing = set()
    with serve_matrix("compatible") as setup:
        for target in TARGETS:
            if target.profile.protocol == "openai-chat":
                first = next(run_cells(setup, target, "claude/unknown_model"))
                refusing |= {target.profile.name} if first.refusal else set()
    chat_hosts = {target.profile.name for target in TARGETS if target.profile.protocol == "openai-chat"}
    accepting = chat_hosts - refusing
    assert accepting == {"openai", "azure", "cerebras", "gemini", "openrouter"}


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(accepted_cells())
