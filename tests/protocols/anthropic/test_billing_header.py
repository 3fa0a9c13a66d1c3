"""The billing header of Claude Code, at Anthropic and at other vendors."""

from typing import Any

import pytest

from tests.support.bodies.minimal import anthropic_request
from tests.support.protocols import ANTHROPIC
from tests.support.translation import loss_kinds, translate_body, translated_body
from toolwire.protocols import PROTOCOLS

LINE = "x-anthropic-billing-header: cc_version=2.1.100.11f; cc_entrypoint=cli; cch=1a2b3;"
OTHERS = [name for name in PROTOCOLS if name != ANTHROPIC]


def report_of_system(body: dict[str, Any], target: str) -> list[str]:
    """Return severity, kind and path of the losses in system text."""
    losses = translate_body(body, ANTHROPIC, target).losses
    return [f"{loss.severity} {loss.kind} {loss.path}" for loss in losses if loss.path.startswith("/system")]


def claude_code_system(*texts: str) -> dict[str, Any]:
    return anthropic_request(system=[{"type": "text", "text": text} for text in (LINE, *texts)])


@pytest.mark.parametrize("target", OTHERS)
def test_line_is_dropped_and_reported(target: str) -> None:
    body = claude_code_system("You are Claude Code.", "Be brief.")
    assert "x-anthropic-billing-header" not in str(translated_body(body, ANTHROPIC, target))
    assert translated_body(body, ANTHROPIC, target) == translated_body(
        {**body, "system": body["system"][1:]}, ANTHROPIC, target
    )
    assert "info dropped /system/0" in report_of_system(body, target)


@pytest.mark.parametrize("target", OTHERS)
def test_line_that_begins_a_longer_text_is_cut_off(target: str) -> None:
    body = anthropic_request(system=f"{LINE}\n\nYou are Claude Code.")
    expected = anthropic_request(system="You are Claude Code.")
    assert translated_body(body, ANTHROPIC, target) == translated_body(expected, ANTHROPIC, target)
    assert "info approximated /system" in report_of_system(body, target)


def test_line_alone_leaves_no_system_text() -> None:
    assert "instructions" not in translated_body(claude_code_system(), ANTHROPIC, "openai-responses")


def test_losses_of_later_blocks_keep_their_positions() -> None:
    body = claude_code_system("You are Claude Code.", "Be brief.")
    body["system"][2]["cache_control"] = {"type": "ephemeral"}
    assert loss_kinds(body, ANTHROPIC, "gemini")["/system/2/cache_control"] == "dropped"


@pytest.mark.parametrize("host", ["deepseek", "moonshot", "zai", "minimax", "dashscope", "openrouter", "llamacpp"])
@pytest.mark.parametrize("has_block", [True, False])
def test_line_is_dropped_at_the_messages_api_of_other_vendors(host: str, has_block: bool) -> None:
    body = claude_code_system("You are Claude Code.")
    if not has_block:
        body["system"] = f"{LINE}\nYou are Claude Code."
    translation = translate_body(body, ANTHROPIC, ANTHROPIC, host=host)
    expected = [{"type": "text", "text": "You are Claude Code."}] if has_block else "You are Claude Code."
    assert translation.value == {**body, "system": expected}
    assert [loss.severity for loss in translation.losses] == ["info"]


def test_line_stays_for_anthropic_and_elsewhere_in_the_text() -> None:
    body = claude_code_system("You are Claude Code.")
    assert translate_body(body, ANTHROPIC, ANTHROPIC).value == body
    quoted = anthropic_request(system=f"Explain: {LINE}")
    assert LINE in str(translated_body(quoted, ANTHROPIC, "gemini"))
