"""Each view of the console in a real Chromium, with traffic of the simulators."""

import json
import re
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.gateway.console.chromium.console_setup import (
    ConsoleGateway,
    chat_request,
    claude_request,
    open_exchange,
    record_runs,
    run_console_gateway,
    send_traffic,
)

ROWS = ".rows-spacer .row"


def test_list_grows_as_requests_come_in(console: ConsoleGateway, browser: Browser) -> None:
    page = console.open_page(browser)
    expect(page.get_by_role("heading", name="Waiting for the first request")).to_be_visible()
    console.post("/v1/messages", claude_request())
    expect(page.locator(ROWS)).to_have_count(1)
    expect(page.locator(ROWS)).to_contain_text("groq/llama-3.3-70b-versatile")
    expect(page.locator(ROWS)).to_contain_text("anthropic → openai-chat")
    send_traffic(console)
    expect(page.locator(ROWS)).to_have_count(9)
    expect(page.locator(".count")).to_have_text("9 exchanges")


def test_enter_opens_the_exchange_that_j_selected(console: ConsoleGateway, browser: Browser) -> None:
    console.post("/v1/messages", claude_request())
    page = console.open_page(browser)
    expect(page.locator(ROWS)).to_have_count(1)
    capture = page.locator("button.capture")
    capture.focus()
    for key in ("j", "k"):
        page.keyboard.press(key)
        expect(page.locator(".grid")).to_be_focused()
        capture.focus()
    before = capture.get_attribute("class")
    for key in ("j", "Enter"):
        page.keyboard.press(key)
    expect(page.locator(".detail-body")).to_be_visible()
    assert capture.get_attribute("class") == before


def test_search_filters_and_sorting(console: ConsoleGateway, browser: Browser) -> None:
    send_traffic(console)
    page = console.open_page(browser)
    expect(page.locator(ROWS)).to_have_count(8)
    expect(page.locator(f"{ROWS}[aria-rowindex='2'] .row-detail")).to_contain_text(
        re.compile("Claude Code · .*anthropic → gemini")
    )
    search = page.get_by_label("Search exchanges")
    for text, count in (
        ("groq", 3),
        ("provider:groq", 2),
        ("status:4xx", 1),
        ("is:stream", 3),
        ("anthropic stream", 3),
        ("1,667", 1),
        ("top_k", 1),
        ("loss:top_k", 1),
        ("logit_bias", 1),
        ("warnings", 2),
        ("client:anthropic model:gemini", 1),
        ("client:claude-cli", 3),
        ("claude code", 3),
        ("no-such-text", 0),
    ):
        search.fill(text)
        expect(page.locator(ROWS)).to_have_count(count)
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(ROWS)).to_have_count(8)
    page.get_by_label("Status").select_option("failed")
    expect(page.locator(ROWS)).to_have_count(1)
    page.get_by_label("Status").select_option("all")
    page.get_by_role("button", name="Cost").click()
    expect(page.get_by_role("columnheader", name="Cost")).to_have_attribute("aria-sort", "descending")
    expect(page.locator(f"{ROWS}[aria-rowindex='2']")).to_contain_text("claude-opus-4-1")


def test_search_shows_the_loss_that_it_found(console: ConsoleGateway, browser: Browser) -> None:
    console.post("/v1/messages", claude_request())
    console.post("/v1/messages", claude_request("anthropic/claude-sonnet-4-5"))
    page = console.open_page(browser)
    expect(page.locator(ROWS)).to_have_count(2)
    page.get_by_label("Search exchanges").fill("top_k")
    expect(page.locator(ROWS)).to_have_count(1)
    expect(page.locator(f"{ROWS} .row-loss")).to_have_text("warning dropped /top_k: Chat Completions has no such field")
    page.get_by_label("Search exchanges").fill("")
    expect(page.locator(f"{ROWS} .row-loss")).to_have_count(0)


def test_captured_exchanges_are_marked_and_found_by_their_prompt(console: ConsoleGateway, browser: Browser) -> None:
    console.capture_bodies(0)
    console.post("/v1/messages", claude_request(), user_agent="codex_cli_rs/0.60.0")
    console.capture_bodies()
    console.post("/v1/messages", claude_request())
    page = console.open_page(browser)
    expect(page.locator(ROWS)).to_have_count(2)
    marks = page.get_by_role("img", name="bodies captured")
    expect(marks).to_have_count(1)
    for text, count in (("is:captured", 1), ("umbrella to oslo", 1), ("codex", 1), ("", 2)):
        page.get_by_label("Search exchanges").fill(text)
        expect(page.locator(ROWS)).to_have_count(count)
    expect(page.locator(f"{ROWS} .row-prompt")).to_have_text("“Should I take an umbrella to Oslo today?”")
    expect(page.locator(ROWS).filter(has_text="Codex")).to_have_count(1)
    page.locator(ROWS).filter(has_text="Codex").click()
    expect(page.locator(".detail-path strong").first).to_have_text("Codex")


def test_pause_holds_the_list(console: ConsoleGateway, browser: Browser) -> None:
    console.post("/v1/messages", claude_request())
    page = console.open_page(browser)
    expect(page.locator(ROWS)).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    console.post("/v1/messages", claude_request())
    resume = page.get_by_role("button", name="Resume, 1 new")
    expect(resume).to_be_visible()
    expect(page.locator(ROWS)).to_have_count(1)
    resume.click()
    expect(page.locator(ROWS)).to_have_count(2)


def test_request_shows_each_loss_at_its_place(console: ConsoleGateway, browser: Browser) -> None:
    page = open_exchange(console, browser, claude_request())
    loss = page.locator(".loss", has_text="/top_k")
    expect(loss).to_contain_text("dropped")
    line = page.locator(".jl.marked.dropped", has_text='"top_k"')
    expect(line).to_be_visible()
    expect(line.locator("xpath=following-sibling::*[1]")).to_contain_text("Chat Completions has no such field")
    loss.click()
    expect(line).to_have_class(re.compile("flash"))
    left, right = page.locator(".pane").all()
    expect(left.get_by_role("heading")).to_have_text("From the client")
    expect(right.get_by_role("heading")).to_have_text("To groq")
    left.locator(".jl", has_text="umbrella").hover()
    expect(right.locator(".jl.same")).to_contain_text("umbrella")


def test_response_and_stream(console: ConsoleGateway, browser: Browser) -> None:
    page = open_exchange(console, browser, claude_request(stream=True))
    page.get_by_role("tab", name="Response").click()
    left, right = page.locator(".pane").all()
    expect(left).to_contain_text('"choices"')
    expect(right).to_contain_text('"stop_reason"')
    page.get_by_role("tab", name="Stream").click()
    expect(page.locator("svg.timeline")).to_be_visible()
    events = page.locator(".event")
    expect(events.filter(has_text="message_start")).to_be_visible()
    times = [float(text.split()[0]) for text in page.locator(".event-time").all_inner_texts() if text.endswith(" ms")]
    assert times == sorted(times)
    events.filter(has_text="message_start").click()
    expect(page.locator(".event-body .json", has_text="input_tokens")).to_be_visible()


def test_other_providers_show_what_they_would_be_sent(console: ConsoleGateway, browser: Browser) -> None:
    page = open_exchange(console, browser, claude_request())
    page.get_by_role("tab", name="Other providers").click()
    page.get_by_role("button", name="gemini", exact=True).click()
    expect(page.get_by_role("heading", name="To gemini")).to_be_visible()
    expect(page.locator(".pane").nth(1)).to_contain_text("systemInstruction")
    protocol = page.get_by_role("button", name="Chat Completions", exact=True)
    expect(page.get_by_role("group", name="Configured providers")).to_contain_text("groq · was sent")
    expect(protocol).to_be_hidden()
    page.get_by_text("Any server that speaks").click()
    protocol.click()
    expect(protocol).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Host").select_option("deepseek")
    expect(page.get_by_role("heading", name="To DeepSeek")).to_be_visible()


def test_chosen_provider_is_kept_for_the_next_exchange(console: ConsoleGateway, browser: Browser) -> None:
    page = open_exchange(console, browser, claude_request())
    page.get_by_role("tab", name="Other providers").click()
    expect(page.get_by_role("heading", name="To anthropic")).to_be_visible()
    page.get_by_role("button", name="gemini", exact=True).click()
    expect(page.get_by_role("heading", name="To gemini")).to_be_visible()
    page.get_by_role("button", name="Copy curl to gemini").click()
    expect(page.locator("#toast.shown")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "/v1beta/models/gemini-2.5-pro:generateContent" in copied
    assert "-H 'x-goog-api-key: '\"$KEY\"" in copied
    assert "sk-upstream" not in copied
    id = console.post("/v1/messages", claude_request()).headers["toolwire-exchange"]
    page.locator(f"#row-{id}").click()
    expect(page.locator(".id-button")).to_have_text(id)
    expect(page.get_by_role("button", name="gemini", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("heading", name="To gemini")).to_be_visible()


def test_commands_are_copied_without_keys(console: ConsoleGateway, browser: Browser) -> None:
    page = open_exchange(console, browser, claude_request(system="it's $(reboot) `x`"))
    for name, expected in (
        ("Copy curl", f"curl -sS {console.url}/v1/messages"),
        ("Copy curl to groq", "-H 'authorization: Bearer '\"$KEY\""),
    ):
        page.get_by_role("button", name=name, exact=True).click()
        expect(page.locator("#toast.shown")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert expected in copied
        assert "sk-upstream" not in copied


def test_replay_is_offered_with_a_journal_only(console: ConsoleGateway, browser: Browser, tmp_path: Path) -> None:
    replay = "Copy replay"
    page = open_exchange(console, browser, claude_request())
    expect(page.get_by_role("button", name="Copy curl", exact=True)).to_be_enabled()
    assert page.get_by_role("button", name=replay).count() == 0
    with ExitStack() as stack:
        journal = f'[journal]\nenabled = true\nbodies = true\npath = "{tmp_path}/journal.db"\n'
        page = open_exchange(run_console_gateway(stack, tmp_path, journal), browser, claude_request())
        page.get_by_role("button", name=replay).click()
        expect(page.locator("#toast.shown")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert re.fullmatch(r"toolwire journal replay ex_[0-9a-f]{16} --to PROVIDER/MODEL", copied)
        page.context.close()


def test_copied_command_sends_the_same_request(console: ConsoleGateway, browser: Browser) -> None:
    import subprocess

    page = open_exchange(console, browser, claude_request(system='it\'s $(reboot) `x` "y" \\'))
    page.get_by_role("button", name="Copy curl", exact=True).click()
    expect(page.locator("#toast.shown")).to_be_visible()
    command = page.evaluate("navigator.clipboard.readText()")
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    assert json.loads(done.stdout)["type"] == "message"
    expect(page.locator(ROWS)).to_have_count(2)
    assert console.app.console is not None
    first, second = console.app.console.buffer.after(0, 10)
    assert first.captured is not None
    assert second.captured is not None
    assert first.captured.finished.bodies is not None
    assert second.captured.finished.bodies is not None
    assert first.captured.finished.bodies.translated == second.captured.finished.bodies.translated


def test_export_downloads_a_zip_file(console: ConsoleGateway, browser: Browser, tmp_path: Path) -> None:
    page = open_exchange(console, browser, claude_request())
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    download.value.save_as(tmp_path / "bundle.zip")
    names = zipfile.ZipFile(tmp_path / "bundle.zip").namelist()
    assert [name for name in names if name.endswith("/request.json")]


def test_losses_are_shown_by_direction_without_bodies(console: ConsoleGateway, browser: Browser) -> None:
    console.capture_bodies(0)
    page = open_exchange(console, browser, claude_request())
    paths = page.locator(".loss-path")
    expect(paths).to_have_text(["/top_k", "/system/0/cache_control"])
    page.get_by_role("button", name="See what was lost in the response").click()
    expect(page.get_by_role("tab", name="Response")).to_have_attribute("aria-selected", "true")
    expect(paths).to_have_text("/created")
    page.get_by_role("tab", name="Stream").click()
    expect(paths).to_have_count(0)


def test_equal_losses_are_one_entry_with_all_places(console: ConsoleGateway, browser: Browser) -> None:
    texts = [
        {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in ("One.", "Two.", "Three.")
    ]
    page = open_exchange(console, browser, claude_request(system=texts))
    marks = page.locator(".loss", has_text="cache_control")
    expect(marks).to_have_count(1)
    expect(marks.locator(".loss-path")).to_have_text("/system/0/cache_control")
    marks.get_by_role("button", name="and 2 more places").click()
    expect(marks.locator(".place")).to_have_text(["/system/1/cache_control", "/system/2/cache_control"])
    marks.locator(".place").last.click()
    flashed = page.locator(".pane").first.locator(".jl.flash")
    expect(flashed).to_contain_text("cache_control")
    following = flashed.locator("xpath=following-sibling::*")
    assert "cache marks" in following.first.inner_text()
    assert page.locator(".pane").first.locator(".jl.marked:below(.jl.flash)").count() == 0  # the last one


def test_body_for_another_provider_is_in_view_despite_many_losses(console: ConsoleGateway, browser: Browser) -> None:
    content = [
        {"type": "text", "text": "Read it.", "cache_control": {"type": "ephemeral"}},
        *({"type": kind, "data": "?"} for kind in ("one", "two", "three")),
    ]
    request = claude_request(
        "anthropic/claude-sonnet-4-5",
        messages=[{"role": "user", "content": content}],
        **{f"unknown_{number}": number for number in range(9)},
    )
    response = console.post("/v1/messages", request)
    path = f"/#/exchanges/{response.headers['toolwire-exchange']}/elsewhere"
    page = console.open_page(browser, path, viewport={"width": 1280, "height": 860})
    page.get_by_role("button", name="gemini", exact=True).click()
    pane = page.get_by_role("region", name="To gemini", exact=True)
    expect(pane.locator(".pane-subtitle")).to_have_text("gemini-2.5-pro · Gemini")
    expect(pane.locator(".pane-address")).to_have_text("POST /v1beta/models/gemini-2.5-pro:generateContent")
    expect(pane.locator(".jl").nth(5)).to_be_in_viewport()
    folded = page.locator(".folded-losses details")
    summary = folded.locator("summary")
    expect(summary).to_have_text("Losses: 3 errors, 9 warnings, 3 notes")
    expect(folded.locator(".loss").first).to_be_hidden()
    summary.click()
    folded.locator("button.loss-text", has_text="/unknown_3").click()
    expect(page.get_by_role("region", name="From the client", exact=True).locator(".jl.flash")).to_contain_text(
        "unknown_3"
    )
    few = console.post("/v1/messages", claude_request("anthropic/claude-sonnet-4-5", unknown=1))
    page.goto(f"{console.url}/#/exchanges/{few.headers['toolwire-exchange']}/elsewhere")
    expect(page.locator(".detail-id")).to_contain_text(few.headers["toolwire-exchange"])
    page.get_by_role("button", name="gemini", exact=True).click()
    expect(pane).to_be_visible()
    expect(summary).to_have_text("Losses: 2 notes")
    expect(page.locator(".loss.warning")).to_be_visible()


def test_search_without_a_match_says_what_is_searched(console: ConsoleGateway, browser: Browser) -> None:
    id = console.post("/v1/messages", claude_request()).headers["toolwire-exchange"]
    page = console.open_page(browser)
    expect(page.locator(ROWS)).to_have_count(1)
    search = page.get_by_label("Search exchanges")
    search.fill("umbrellas")
    expect(page.locator(".empty")).to_contain_text("Words of messages are found only in captured exchanges")
    expect(page.locator(".empty code")).to_contain_text(["top_k", id])
    for example in ("top_k", "is:captured", id):
        search.fill("umbrellas")
        page.locator(".empty").get_by_role("button", name=example, exact=True).click()
        expect(search).to_have_value(example)
        expect(page.locator(ROWS)).to_have_count(1)
    search.fill("")
    page.get_by_label("Status", exact=True).select_option("failed")
    expect(page.locator(".empty")).to_contain_text("No exchange matches")
    expect(page.locator(".empty")).not_to_contain_text("messages")


def test_narrow_list_shows_and_sorts_by_cost(console: ConsoleGateway, browser: Browser) -> None:
    """A narrow list has no columns for time and cost; they stand in each row."""
    send_traffic(console)
    page = console.open_page(browser, viewport={"width": 390, "height": 844})
    expect(page.locator(ROWS)).to_have_count(8)
    page.get_by_label("Sort").select_option("cost")
    first = page.locator(f"{ROWS}[aria-rowindex='2']")
    expect(first).to_contain_text("claude-opus-4-1")
    expect(first.locator(".fact-cost")).to_have_text(re.compile(r"^\$0\.0\d+ · $"))
    expect(first.locator(".fact-cost")).to_be_visible()
    expect(first.locator(".row-detail")).to_have_text(
        re.compile(r"^\d\d:\d\d:\d\d · Gemini CLI · \$"), use_inner_text=True
    )
    page.set_viewport_size({"width": 1440, "height": 900})
    expect(page.get_by_label("Sort", exact=True)).to_be_hidden()
    expect(first.locator(".fact-cost")).to_be_hidden()
    expect(first.locator(".c6")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Cost")).to_have_attribute("aria-sort", "descending")


def test_next_exchange_opens_once_bodies_are_captured(console: ConsoleGateway, browser: Browser) -> None:
    console.capture_bodies(0)
    page = open_exchange(console, browser, claude_request())
    page.get_by_role("tab", name="Other providers").click()
    page.locator(".detail").get_by_role("button", name="Capture bodies for 15 minutes").click()
    expect(page.locator("#toast")).to_have_text("bodies of new exchanges are captured for 15 minutes")
    expect(page.locator(".waiting-line")).to_contain_text(
        "the next exchange of groq/llama-3.3-70b-versatile opens here"
    )
    console.post("/v1/chat/completions", chat_request("groq/llama-3.3-70b-versatile"))  # of another client
    expect(page.locator(ROWS)).to_have_count(2)
    other = page.get_by_role("link", name="Or open a captured exchange of another client or model")
    expect(other).to_have_text(re.compile(r": groq/llama-3\.3-70b-versatile, Chat Completions, at \d\d:\d\d:\d\d$"))
    console.post("/v1/messages", claude_request())
    expect(page.get_by_role("heading", name="To anthropic")).to_be_visible()
    expect(page.get_by_role("tab", name="Other providers")).to_have_attribute("aria-selected", "true")
    expect(page.locator(f"{ROWS}.selected")).to_have_attribute("aria-rowindex", "2")
    console.post("/v1/messages", claude_request())
    expect(page.locator(ROWS)).to_have_count(4)
    expect(page.locator(f"{ROWS}.selected")).to_have_attribute("aria-rowindex", "3")  # only the first one opens
    page.get_by_role("button", name="Stop capturing, 15 min left").click()
    expect(page.get_by_role("button", name="Capture bodies", exact=True)).to_be_visible()


def test_captured_exchange_of_the_same_client_and_model_is_offered(console: ConsoleGateway, browser: Browser) -> None:
    console.capture_bodies(0)
    shown = console.post("/v1/messages", claude_request()).headers["toolwire-exchange"]
    console.capture_bodies()
    same = console.post("/v1/messages", claude_request()).headers["toolwire-exchange"]
    console.post("/v1/messages", claude_request("anthropic/claude-sonnet-4-5"))
    console.post("/v1/chat/completions", chat_request("groq/llama-3.3-70b-versatile"))
    page = console.open_page(browser)
    expect(page.locator(ROWS)).to_have_count(4)
    page.goto(f"{console.url}/#/exchanges/{shown}")
    page.get_by_role("link", name="Or open the latest captured exchange: groq/llama-3.3-70b-versatile").click()
    expect(page.locator(".id-button")).to_have_text(same)


def test_bodies_can_be_captured_from_the_start(console: ConsoleGateway, browser: Browser) -> None:
    console.capture_bodies(0)
    page = console.open_page(browser)
    offer = page.get_by_role("button", name="Capture bodies for 15 minutes")
    expect(offer).to_have_count(1)
    console.post("/v1/messages", claude_request())
    expect(page.locator(".list-note")).to_contain_text(re.compile("^Bodies are not captured"))
    offer.click()
    expect(page.locator(".list-note")).to_be_hidden()
    console.post("/v1/messages", claude_request())
    page.locator(f"{ROWS}[aria-rowindex='3']").wait_for()
    page.locator(f"{ROWS}[aria-rowindex='2']").click()
    expect(page.locator(".pane")).to_have_count(2)
    page.get_by_role("link", name="Open in playground").click()
    expect(page.get_by_label("Body", exact=True)).to_have_value(re.compile("umbrella"))
    page.get_by_role("button", name="Stop capturing").click()
    page.goto(f"{console.url}/#/exchanges")
    expect(page.locator(".list-note")).to_contain_text(re.compile("^New bodies are not captured"))


def test_playground_translates_as_one_types_and_runs(console: ConsoleGateway, browser: Browser) -> None:
    page = console.open_page(browser, "/#/playground")
    expect(page.get_by_role("tab", name="Chat Completions")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".loss", has_text="/top_k")).to_be_visible()
    body = {"contents": [{"role": "user", "parts": [{"text": "A question"}]}]}
    page.get_by_label("Body", exact=True).fill(json.dumps(body))
    expect(page.get_by_label("Protocol of the body")).to_have_value("gemini")
    expect(page.locator(".playground-result .pane").nth(1)).to_contain_text("A question")
    page.get_by_role("tab", name="Responses").click()
    expect(page.locator(".playground-result .pane").nth(1)).to_contain_text('"input"')
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".run-answer .status")).to_have_text("200")
    page.get_by_label("Run on").select_option("anthropic")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("link", name="see the exchange").click()
    expect(page.locator(".detail-title")).to_contain_text("claude-sonnet-4-5")
    page.goto(console.url + "/#/playground")
    page.get_by_label("Body", exact=True).fill("{ no JSON")
    expect(page.get_by_role("alert")).to_contain_text("Not JSON yet")


def test_runs_are_shown_with_pictures_and_approvals(console: ConsoleGateway, browser: Browser, tmp_path: Path) -> None:
    finished, waiting = record_runs(tmp_path)
    page = console.open_page(browser, "/#/runs")
    page.get_by_role("link", name="Should I take an umbrella").click()
    expect(page.get_by_role("heading", name=finished)).to_be_visible()
    picture = page.get_by_role("img", name="Screenshot after take_screenshot")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.naturalWidth") == 2
    page.get_by_role("link", name="Tell Ann").click()
    expect(page.locator(".waiting-note")).to_contain_text(f"toolwire runs resume {waiting} --approve")
    assert page.get_by_role("button", name="Approve").count() == 0


def test_status_shows_usage_providers_and_doctor(console: ConsoleGateway, browser: Browser) -> None:
    send_traffic(console)
    page = console.open_page(browser, "/#/status")
    expect(page.locator(".tile", has_text="Most expensive")).to_contain_text("claude-opus-4-1")
    expect(page.locator("svg.chart")).to_have_count(3)
    assert page.locator("svg.chart .column").first.bounding_box()
    expect(page.get_by_role("row", name=re.compile("groq"))).to_have_count(2)  # of the models, and of the providers
    page.get_by_role("button", name="Run the checks").click()
    expect(page.locator(".doctor li", has_text="groq")).to_be_visible()
    page.locator(".tile", has_text="Most expensive").click()
    expect(page.locator(".detail-title")).to_contain_text("claude-opus-4-1")


def test_keyboard_alone_is_enough(console: ConsoleGateway, browser: Browser) -> None:
    send_traffic(console)
    page = console.open_page(browser)
    expect(page.locator(ROWS)).to_have_count(8)
    page.keyboard.press("j")
    expect(page.locator(f"{ROWS}.selected")).to_have_attribute("aria-rowindex", "2")
    page.keyboard.press("j")
    expect(page.locator(f"{ROWS}.selected")).to_have_attribute("aria-rowindex", "3")
    expect(page.locator(".detail")).to_be_visible()
    page.keyboard.press("]")
    expect(page.get_by_role("tab", name="Response")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(page.locator(".detail")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type("gemini")
    expect(page.get_by_label("Search exchanges")).to_have_value("gemini")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    expect(page.locator(f"{ROWS}.selected")).to_have_count(1)
    expect(page.locator(".key-hints")).to_contain_text("?all keys")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("4")
    expect(page.get_by_role("heading", name="Status", level=1)).to_be_visible()


CUT_FILTERS = """() => [...document.querySelectorAll('.toolbar select')].filter(select => {
    const context = document.createElement('canvas').getContext('2d');
    context.font = getComputedStyle(select).font;
    const text = context.measureText(select.selectedOptions[0].text).width;
    return !select.hidden && text + 32 > select.offsetWidth; // padding, border and arrow
}).map(select => select.getAttribute('aria-label'))"""


@pytest.mark.parametrize("path", ["exchanges", "playground", "runs", "status"])
def test_page_fits_a_phone(console: ConsoleGateway, browser: Browser, tmp_path: Path, path: str) -> None:
    record_runs(tmp_path)
    send_traffic(console)
    page = console.open_page(browser, f"/#/{path}", viewport={"width": 360, "height": 740}, has_touch=True)
    page.wait_for_selector("#view > *")
    expect(page.locator(".feed-state.live")).to_be_attached()
    _assert_no_sideways_scrolling(page)
    if path == "exchanges":
        assert page.evaluate(CUT_FILTERS) == []
        page.locator(ROWS).first.tap()
        expect(page.locator(".pane").first).to_be_visible()
        _assert_no_sideways_scrolling(page)
        page.get_by_role("button", name="Back to the list").tap()
        expect(page.locator(ROWS).first).to_be_visible()


@pytest.mark.parametrize("width", [759, 760, 999, 1000])
def test_bar_fits_while_bodies_are_captured(console: ConsoleGateway, browser: Browser, width: int) -> None:
    console.capture_bodies()
    page = console.open_page(browser, "/", viewport={"width": width, "height": 600})
    expect(page.get_by_role("button", name="Stop capturing")).to_be_visible()
    expect(page.locator(".feed-state.live")).to_be_attached()
    _assert_no_sideways_scrolling(page)


def _assert_no_sideways_scrolling(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.getElementById('view').firstElementChild.scrollWidth <= innerWidth")
