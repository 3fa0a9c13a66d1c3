"""The same task on the same page, by a model of any vendor, in the vendor's own form or in another's."""

import asyncio
from typing import Any

import pytest

from tests.runtime.browser.chromium.tasks import DONE, RESULT, asking, desk, model, turns, work
from toolwire.canonical.content import Media, Text, ToolResult

# Whose form it is, and a model that gets it.
FORMS = [
    ("anthropic", "claude-opus-4-8"),
    ("anthropic", "claude-opus-6"),
    ("openai-responses", "gpt-5.5"),
    ("openai-responses", "computer-use-preview"),
    ("gemini", "gemini-2.5-computer-use-preview-10-2025"),
    ("gemini", "gemini-3.8-flash"),
    ("gemini-interactions", "gemini-3.8-flash"),
    ("openai-chat", "gpt-5.5"),
]


def results(run: Any) -> list[ToolResult]:
    return [part for message in run.messages for part in message.parts if isinstance(part, ToolResult)]


@pytest.mark.parametrize(("protocol", "name"), FORMS)
def test_the_task_is_done_in_the_vendors_own_form(protocol: str, name: str) -> None:
    with desk() as site, model(protocol, *turns()) as url:
        run = work(asking(protocol, url, name), site, name)
        assert (run.stopped, run.text, run.why) == ("finished", "It is done.", "")
        assert [asked for asked in site.asked if "/done" in asked] == [DONE]
