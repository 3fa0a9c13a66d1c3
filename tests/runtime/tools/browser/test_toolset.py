"""The browser as a toolset, before any browser is started: declaration, policy and approval."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.deadlines import DEADLINE
from toolwire.canonical.content import ToolCall
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import Computer, NativeTool
from toolwire.runtime.calls.admission import admit_call
from toolwire.runtime.policy import Policy
from toolwire.runtime.run.state import PendingCall, RunState
from toolwire.runtime.tool import Tool, ToolCatalog
from toolwire.runtime.tools.browser import BrowserSettings, LargestImage, Size
from toolwire.runtime.tools.browser.toolset import Browser

CLICK = {"kind": "click", "x": 1, "y": 1}
ADDRESS = [{"kind": "keys", "keys": ["Control", "l"]}, {"kind": "type", "text": "https://b.example/"}]
ENTER = {"kind": "keys", "keys": ["Enter"]}
CHECK = {"id": "sc_1", "message": "It buys something."}


def tool(**settings: Any) -> Tool:
    (restricted,) = asyncio.run(Browser(settings=BrowserSettings(**settings)).tools())
    return restricted


def admit_actions(*actions: dict[str, Any], checks: Any = (), **rules: Any) -> PendingCall:
    arguments = {"actions": actions, **({"checks": checks} if checks else {})}
    call = ToolCall(id="c", name="computer", arguments=json.dumps(arguments))
    return admit_call(call, "c", ToolCatalog({"computer": tool()}), Policy(**rules))


def test_declared_display_has_the_screenshot_size() -> None:
    declared = tool(page_size=Size(1920, 1080), largest_image=LargestImage(edge=1568, pixels=1_150_000)).declaration()
    assert isinstance(declared, NativeTool)
    assert isinstance(declared.computer, Computer)
    assert (declared.computer.width, declared.computer.height) == (1429, 804)


def test_only_allowed_actions_are_declared_and_accepted() -> None:
    restricted = tool(actions=frozenset({"screenshot", "scroll"}))
    assert restricted.native is not None
    assert restricted.native.computer is not None
    assert restricted.native.computer.kinds == ("screenshot", "scroll")
    call = ToolCall(id="c", name="computer", arguments='{"actions": [{"kind": "click", "x": 1, "y": 1}]}')
    pending = admit_call(call, "c", ToolCatalog({"computer": restricted}), Policy(allow=["computer"]))
    assert pending.rejection_kind == "schema"


@pytest.mark.parametrize(
    ("actions", "rules", "verdict"),
    [
        ([{"kind": "screenshot"}, {"kind": "scroll", "dy": 10}, {"kind": "read_text"}], {}, "allow"),
        ([CLICK], {}, "ask"),
        ([{"kind": "navigate", "url": "https://a.example/"}], {}, "ask"),
        ([{"kind": "screenshot"}, CLICK], {"allow": ["computer(kind=click)"]}, "allow"),
        (
            [{"kind": "click", "x": 1, "y": 1}, {"kind": "type", "text": "a"}],
            {"allow": ["computer(kind=click)"]},
            "ask",
        ),
        ([{"kind": "screenshot"}], {"deny": ["computer(kind=screenshot)"]}, "deny"),
        (
            [{"kind": "navigate", "url": "https://a.example/x"}],
            {"allow": ["computer(kind=navigate, url=https://a.example/*)"]},
            "allow",
        ),
        (
            [{"kind": "navigate", "url": "https://b.example/x"}],
            {"allow": ["computer(kind=navigate, url=https://a.example/*)"]},
            "ask",
        ),
        (  # navigation in a format without a navigate action
            [*ADDRESS, ENTER],
            {"allow": ["computer"], "deny": ["computer(kind=navigate, url=*b.example*)"]},
            "deny",
        ),
        ([{"kind": "click", "x": "one"}], {}, "ask"),
    ],
)
def test_policy_checks_every_action(actions: list[dict[str, Any]], rules: dict[str, Any], verdict: str) -> None:
    assert admit_actions(*actions, **rules).verdict == verdict


def test_safety_check_requires_a_person_despite_rules() -> None:
    pending = admit_actions({"kind": "screenshot"}, checks=[CHECK], allow=["computer"])
    assert pending.verdict == "ask"
    ask = RunState(run="r").approval_request(pending)
    assert ask.requires_human
    assert ask.reason == "the provider requires a person's approval: It buys something."
    assert not RunState(run="r").approval_request(admit_actions(CLICK)).requires_human


def test_preview_lists_actions_and_suggested_rules() -> None:
    ask = RunState(run="r").approval_request(
        admit_actions({"kind": "click", "x": 1, "y": 2}, {"kind": "type", "text": "a"})
    )
    assert ask.preview == "click x=1 y=2\ntype text=a"
    assert ask.suggested_rules == ("computer(kind=click)", "computer(kind=type)")


def test_start_page_must_be_allowed() -> None:
    with pytest.raises(ToolwireError, match="not an allowed host"):
        Browser("https://b.example/", hosts=["a.example"])


def test_missing_playwright_is_reported_on_open() -> None:
    program = (
        "import asyncio, sys; sys.modules['playwright'] = None; from toolwire import Browser; browser = Browser()\n"
        "assert len(asyncio.run(browser.tools())) == 1\n"
        "try: asyncio.run(browser.open())\nexcept Exception as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    assert done.stdout.startswith("the browser needs the extra `browser`: "), done.stderr
