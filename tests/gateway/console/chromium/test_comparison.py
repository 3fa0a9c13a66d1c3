"""Two bodies side by side in a real Chromium: scrolling, folding, and the way from a value to its counterpart."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.gateway.console.chromium.console_setup import ConsoleGateway, claude_request, open_exchange

SIZES = [(1280, 860), (1440, 900), (780, 600)]
NEWS = "The editor's note of this member, which only stands here."


def build_tool(number: int) -> dict[str, Any]:
    properties = {f"argument_{number}_{index}": {"type": "string", "description": NEWS} for index in range(3)}
    properties[f"last_{number}"] = {"type": "string", "description": f"The last argument of tool {number} of all."}
    schema = {"type": "object", "properties": properties, "required": [f"last_{number}"]}
    return {"name": f"tool_{number}", "description": f"Tool {number} does one thing.", "input_schema": schema}


def long_request(**fields: Any) -> dict[str, Any]:
    return claude_request(tools=[build_tool(number) for number in range(30)], **fields)


def panes(page: Page) -> tuple[Locator, Locator]:
    left, right = page.locator(".pane").all()
    return left, right


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_each_body_scrolls_under_its_header(console: ConsoleGateway, browser: Browser, width: int, height: int) -> None:
    page = open_exchange(console, browser, long_request())
    page.set_viewport_size({"width": width, "height": height})
    left, right = panes(page)
    right.locator(".pane-body").hover()
    page.mouse.wheel(0, 2500)
    expect(right.locator(".jl").first).not_to_be_in_viewport()
    expect(left.locator(".jl").first).to_be_in_viewport()
    for pane in (left, right):
        expect(pane.get_by_role("heading")).to_be_in_viewport(ratio=1)
    frames = [pane.bounding_box() for pane in (left, right)]
    assert frames[0] is not None
    assert frames[1] is not None
    assert frames[0]["height"] == frames[1]["height"]


def test_body_begins_in_the_upper_half(console: ConsoleGateway, browser: Browser) -> None:
    unknown: dict[str, Any] = {f"unknown_{number}": number for number in range(12)}
    page = open_exchange(console, browser, claude_request(**unknown))
    page.set_viewport_size({"width": 1280, "height": 860})
    losses = page.locator(".loss")
    expect(losses).to_have_count(3)
    line = page.locator(".pane-body .jl").first
    expect(line).to_be_visible()
    assert _top(line) < 430
    page.get_by_role("button", name="Show 11 more").click()
    expect(losses).to_have_count(14)
    expect(losses.nth(3).locator("button")).to_be_focused()
    frame = page.locator(".losses").bounding_box()
    assert frame is not None
    assert frame["height"] <= 860 / 3
    expect(line).to_be_in_viewport()


def _top(line: Locator) -> float:
    frame = line.bounding_box()
    assert frame is not None
    return frame["y"]


def test_counts_of_losses_and_groups_are_told_apart(console: ConsoleGateway, browser: Browser) -> None:
    texts = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in ("One.", "Two.")]
    page = open_exchange(console, browser, claude_request(system=texts, unknown_1=1, unknown_2=2, unknown_3=3))
    tab = page.get_by_role("tab", name="Request").locator(".tab-count")
    expect(tab).to_have_text("8")
    expect(tab).to_have_attribute("title", "8 losses in 6 groups")
    expect(page.locator(".losses")).to_contain_text("Show 3 more · 8 losses in 6 groups")


def test_chosen_value_unfolds_its_counterpart(console: ConsoleGateway, browser: Browser) -> None:
    page = open_exchange(console, browser, long_request())
    left, right = panes(page)
    right.get_by_role("button", name="Expand all").click()
    right.get_by_role("button", name="Collapse").click()
    left.get_by_role("button", name="Expand all").click()
    own = left.locator(".jl", has_text="The last argument of tool 29 of all.")
    counterpart = right.locator(".jl", has_text="The last argument of tool 29 of all.")
    expect(counterpart).to_be_hidden()
    own.hover()
    target = "/tools/29/function/parameters/properties/last_29/description"
    expect(page.locator(".legend")).to_contain_text(f"last_29/description → {target} (folded: click to show it)")
    own.click()
    expect(counterpart).to_be_in_viewport()
    expect(counterpart).to_have_class("jl flash same")
    expect(page.locator(".legend")).not_to_contain_text("folded")


def test_marked_value_is_chosen_with_the_keyboard(console: ConsoleGateway, browser: Browser) -> None:
    page = open_exchange(console, browser, long_request())
    left, right = panes(page)
    sign = left.get_by_role("button", name="dropped: show the other side").first
    sign.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".legend")).to_contain_text("not in “To groq”")
    model = right.locator(".jl.only", has_text='"model"').get_by_role("button")
    model.press("Enter")
    expect(left.locator(".jl.flash", has_text='"model": "groq/llama-3.3-70b-versatile"')).to_be_in_viewport()


def test_loss_shows_where_its_value_would_be(console: ConsoleGateway, browser: Browser) -> None:
    tools = [build_tool(number) for number in range(30)]
    tools[20]["cache_control"] = {"type": "ephemeral"}
    page = open_exchange(console, browser, claude_request(tools=tools))
    loss = page.locator(".loss", has_text="/tools/20/cache_control")
    expect(loss.locator(".loss-tool")).to_have_text("tool_20")
    loss.locator(".loss-text").click()
    left, right = panes(page)
    expect(left.locator(".jl.flash", has_text="cache_control")).to_be_in_viewport()
    expect(right.locator(".jl", has_text='"tool_20"')).to_be_in_viewport()


def test_changed_member_is_not_folded_away_on_either_side(console: ConsoleGateway, browser: Browser) -> None:
    tool = build_tool(0)
    member = tool["input_schema"]["properties"]["last_0"]
    member |= {"description": "A name.", "pattern": "^[a-z]{3,12}-suffix$"}
    filler = [build_tool(number) for number in range(1, 30)]
    page = open_exchange(console, browser, claude_request("gemini/gemini-2.5-pro", tools=[*filler, tool]))
    left, right = panes(page)
    for pane in (left, right):
        expect(pane.locator(".jl", has_text="{3,12}-suffix$")).to_be_attached()
        assert pane.locator(".jl", has_text="{3,12}-suffix$").evaluate("line => line.offsetParent !== null")


def test_expand_shows_a_body_in_full_and_alone(console: ConsoleGateway, browser: Browser) -> None:
    text = "\n".join(f"Rule {number} of the house." for number in range(60))
    page = open_exchange(console, browser, long_request(system=[{"type": "text", "text": text}]))
    left, right = panes(page)
    right.get_by_role("button", name="Expand all").click()
    for shown in ("The last argument of tool 29 of all.", "Rule 59 of the house."):
        expect(right.locator(".jl", has_text=shown)).to_be_attached()
    expect(right.locator('.jt[aria-expanded="false"]')).to_have_count(0)
    right.get_by_role("button", name="Show only the body to groq").click()
    expect(left).to_be_hidden()
    wide = right.bounding_box()
    assert wide is not None
    assert wide["width"] > 800
    page.locator(".loss", has_text="/top_k").locator("button").first.click()
    expect(left).to_be_visible()  # the field is in the hidden body
    right.get_by_role("button", name="Collapse").click()
    expect(right.locator(".jt:visible")).to_have_count(3)  # the body, its messages and its tools


def test_huge_body_is_expanded_up_to_a_limit(console: ConsoleGateway, browser: Browser) -> None:
    page = console.open_page(browser, "/#/playground")
    items = ",".join(f'{{"a": {number}, "b": [{number}]}}' for number in range(4000))
    body = f'{{"model": "huge", "max_tokens": 9, "messages": [], "metadata": {{"items": [{items}]}}}}'
    page.get_by_label("Body", exact=True).fill(body)
    source = page.get_by_role("region", name="Source", exact=True)
    expect(page.locator(".playground-result .pane").nth(1)).to_contain_text('"model": "huge"')
    source.get_by_role("button", name="Expand all").click()
    expect(page.locator("#toast")).to_have_text("The body is long: the rest stays folded")
    assert 3000 < source.locator(".jl").count() < 9000
