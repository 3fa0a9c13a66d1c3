"""Events in pages: tabs, dialogs, crashes; and limits."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from tests.runtime.tools.browser.chromium.browser_session import (
    current_page,
    evaluate,
    perform_all,
    perform_until_error,
    run_in_session,
    side_observations,
)
from tests.support.servers.sites import SitePage, serve_site
from toolwire.canonical.computer import (
    Action,
    Click,
    Drag,
    Keys,
    Navigate,
    ReadText,
    Screenshot,
    Scroll,
    Type,
    Wait,
    Zoom,
)
from toolwire.runtime.tools.browser import (
    BrowserSession,
    BrowserSettings,
    ChromiumNotFound,
    SessionLimits,
    open_session,
)


def button(script: str) -> str:
    return f'<!doctype html><button style="position:absolute;left:0;top:0" onclick="{script}">press</button>'


PRESS = Click(x=10, y=10)


@pytest.mark.parametrize("path", ["/tab", "/slow"])
def test_link_to_new_tab_without_opener(path: str) -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        done = await session.perform([PRESS])
        assert [one.text for one in done.observations] == ["Clicked.", "A new tab was opened and is in view now."]
        assert done.url == f"{site.root}{path}"

    page = f"<!doctype html><body style='margin:0'><a href='{path}' target=_blank rel=noopener>press here</a>"
    with serve_site({"/": page, "/tab": "tab", "/slow": SitePage("tab", delay=0.7)}) as site:
        run_in_session(work, site)


@pytest.mark.parametrize(
    "opened", ["window.open('/tab')", "window.open('/slow')", "window.open('/tab', 'x', 'width=300,height=200')"]
)
def test_new_tab_comes_into_view_until_closed(opened: str) -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        done = await session.perform([PRESS])
        assert [one.text for one in done.observations] == ["Clicked.", "A new tab was opened and is in view now."]
        assert done.url in (f"{site.root}/tab", f"{site.root}/slow")
        assert await perform_all(session, ReadText()) == ["in the tab"]
        assert await evaluate(session, "[innerWidth, innerHeight]") == [1280, 800]
        done = await session.perform([PRESS])
        assert not done.has_failed
        assert "A tab was closed; the one before it is in view now." in [one.text for one in done.observations]
        assert done.screenshot is not None
        assert done.url == f"{site.root}/"

    tab = button("window.close()") + "<p>in the tab</p>"
    tab = tab.replace(">press<", "><").replace("left:0", "width:50px;height:50px;left:0")
    with serve_site({"/": button(opened), "/tab": tab, "/slow": SitePage(tab, delay=0.7)}) as site:
        run_in_session(work, site)


def test_number_of_tabs_is_limited() -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        assert "A new tab was closed, because too many are open." in await side_observations(session, PRESS)
        assert len(current_page(session).context.pages) == 3

    with serve_site({"/": button("for (let i = 0; i < 9; i++) window.open('/tab')"), "/tab": "tab"}) as site:
        run_in_session(work, site, settings=BrowserSettings(limits=SessionLimits(tabs=3)))


@pytest.mark.parametrize(
    ("script", "kind", "answer"),
    [
        ("document.title = alert('words')", "alert", "undefined"),
        ("document.title = confirm('words')", "confirm", "false"),
        ("document.title = prompt('words', 'x')", "prompt", "null"),
    ],
)
def test_dialog_is_dismissed_and_reported(script: str, kind: str, answer: str) -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        texts = await perform_all(session, PRESS)
        assert texts == [f"The page showed a dialog ({kind}), which was dismissed: 'words'", "Clicked."]
        assert await evaluate(session, "document.title") == answer

    with serve_site({"/": button(script)}) as site:
        run_in_session(work, site)


def test_dialog_is_accepted_if_configured() -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"), PRESS)
        assert await evaluate(session, "document.title") == "true"

    with serve_site({"/": button("document.title = confirm('words')")}) as site:
        run_in_session(work, site, settings=BrowserSettings(accept_dialogs=True))


def test_beforeunload_does_not_block_navigation() -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"), PRESS, Navigate(url=f"{site.root}/other"))
        assert await perform_all(session, ReadText()) == ["other"]

    with serve_site({"/": button("onbeforeunload = () => 'stay'"), "/other": "other"}) as site:
        run_in_session(work, site)


def test_crash_is_reported_and_another_page_can_be_opened() -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        view = await session._tabs.view()
        crashed = asyncio.Event()
        current_page(session).on("crash", lambda _: crashed.set())
        crash = asyncio.ensure_future(view.cdp.send("Page.crash"))
        await crashed.wait()
        done = await session.perform([PRESS])
        assert "The page has crashed." in [one.text for one in done.observations]
        assert done.screenshot is None
        await perform_all(session, Navigate(url=f"{site.root}/"))
        assert await perform_all(session, ReadText()) == ["press"]
        crash.cancel()
        await asyncio.gather(crash, return_exceptions=True)

    with serve_site({"/": button("")}) as site:
        run_in_session(work, site)


@pytest.mark.parametrize(
    ("event", "action"),
    [
        ("onclick", PRESS),
        ("onmousemove", PRESS),
        ("onmousemove", Click(x=10, y=10, keys=("Shift",))),
        ("onmousedown", Drag(path=((10, 10), (50, 50)), keys=("Control",))),
        ("onkeydown", Keys(keys=("Shift", "a"))),
        ("onkeydown", Type(text="x")),
        ("onwheel", Scroll(x=10, y=10, dy=10)),
    ],
)
def test_unresponsive_page_is_closed(event: str, action: Action) -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        done = await session.perform([action, Type(text="x")])
        assert [one.is_error for one in done.observations] == [True, True, True]
        assert "timed out after 5 seconds" in done.observations[0].text
        assert "1 more actions" in done.observations[1].text
        assert "does not respond" in done.observations[2].text
        await perform_all(session, Navigate(url=f"{site.root}/other"))

    page = f"<!doctype html><script>{event} = () => {{ while (true) {{}} }}</script>"
    with serve_site({"/": page, "/other": "other"}) as site:
        run_in_session(work, site, settings=BrowserSettings(limits=SessionLimits(action_seconds=5)))


def test_unresponsive_server_is_not_waited_for() -> None:
    async def work(session: BrowserSession) -> None:
        assert (
            "timed out after 1 seconds" in (await perform_until_error(session, Navigate(url=f"{site.root}/slow"))).text
        )

    with serve_site({"/slow": SitePage("x", delay=4)}) as site:
        run_in_session(work, site, settings=BrowserSettings(limits=SessionLimits(action_seconds=1, settle_seconds=0.2)))


@pytest.mark.parametrize(
    ("settings", "actions", "texts"),
    [
        (
            BrowserSettings(limits=SessionLimits(batch_actions=2)),
            [Wait(seconds=0), Wait(seconds=0), Wait(seconds=0), Wait(seconds=0)],
            ["Waited", "Waited", "Refused: at most 2 actions can be performed at once.", "1 more actions"],
        ),
        (
            BrowserSettings(limits=SessionLimits(actions=1)),
            [Wait(seconds=0), Screenshot()],
            ["Waited", "Refused: all 1 actions of this session are used up."],
        ),
        (
            BrowserSettings(limits=SessionLimits(session_seconds=0)),
            [Wait(seconds=0)],
            ["Refused: the session has exceeded its 0 seconds."],
        ),
        (
            BrowserSettings(actions=frozenset({"wait"})),
            [Wait(seconds=0), Type(text="x")],
            ["Waited", "Refused: the action type is not allowed here."],
        ),
        (
            BrowserSettings(actions=frozenset({"click", "forward"})),
            [Click(x=5, y=5, button="back")],
            ["Refused: the action back is not allowed here."],
        ),
        (BrowserSettings(), [object()], ["Refused: unknown action object."]),
        (BrowserSettings(), [Click(x=1280, y=5)], ["Failed: (1280, 5) is outside the display, which is 1280x800."]),
        (
            BrowserSettings(),
            [Zoom(x0=5, y0=5, x1=5, y1=9)],
            ["Failed: (5, 5) to (5, 9) is not a valid region of the 1280x800 display."],
        ),
        (BrowserSettings(), [Keys(keys=("Frobnicate",))], ["Refused: unknown key 'Frobnicate'."]),
        (
            BrowserSettings(),
            [Keys(keys=("ctrl", "v"))],
            ["Refused: the clipboard is disabled; use the action that types text."],
        ),
        (
            BrowserSettings(limits=SessionLimits(typed_characters=3)),
            [Type(text="long")],
            ["Refused: at most 3 characters can be typed at once."],
        ),
    ],
)
def test_refused_action_ends_the_batch_with_a_reason(
    settings: BrowserSettings, actions: list[Action], texts: list[str]
) -> None:
    async def work(session: BrowserSession) -> None:
        done = await session.perform(actions)
        assert [one.text.startswith(text) for one, text in zip(done.observations, texts, strict=True)] == [True] * len(
            texts
        )
        assert done.has_failed
        assert done.screenshot is not None

    run_in_session(work, settings=settings)


def test_missing_chromium_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole(settings: BrowserSettings) -> None:
        async with open_session(settings):
            pass

    with pytest.raises(ChromiumNotFound, match="'/nowhere/chromium'"):
        asyncio.run(whole(BrowserSettings(chromium="/nowhere/chromium")))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ChromiumNotFound, match="apt install chromium"):
        asyncio.run(whole(BrowserSettings()))


def test_no_processes_or_files_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    # A short path, because Chromium creates a socket below it.
    with tempfile.TemporaryDirectory(prefix="left") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        _assert_nothing_remains(Path(folder))


def _assert_nothing_remains(folder: Path) -> None:
    seen: list[str] = []

    def running() -> list[str]:
        commands = [
            path.read_bytes().decode("latin-1") for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)
        ]
        return [command for command in commands if str(folder) in command]

    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        seen.extend(running())

    with serve_site({"/": "x"}) as site:
        run_in_session(work, site)
        assert seen != []
        assert list(folder.iterdir()) == []
        assert running() == []
        with pytest.raises(RuntimeError, match="on purpose"):
            run_in_session(_fail, site)
        assert list(folder.iterdir()) == []
        assert running() == []


async def _fail(session: BrowserSession) -> None:
    raise RuntimeError("on purpose")


def _readable(path: Path) -> bool:
    try:
        return os.access(path, os.R_OK) and bool(path.read_bytes())
    except OSError:
        return False
