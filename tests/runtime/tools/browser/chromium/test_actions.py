"""Each action, on a page that reports what reached it."""

import asyncio

from tests.runtime.tools.browser.chromium.browser_session import (
    colors_at,
    evaluate,
    perform_all,
    perform_until_error,
    run_in_session,
)
from tests.support.servers.sites import SitePage, serve_site
from toolwire.canonical.computer import (
    Action,
    Back,
    Click,
    CursorPosition,
    Drag,
    Forward,
    KeyDown,
    Keys,
    KeyUp,
    MouseDown,
    MouseUp,
    Move,
    Navigate,
    ReadText,
    Reload,
    Screenshot,
    Scroll,
    Type,
    Wait,
)
from toolwire.runtime.tools.browser import BrowserSession, BrowserSettings, SessionLimits

# Elements have fixed positions, so that the tests know where they are.
FORM = """<!doctype html>
<style>body > * { position: absolute; margin: 0 } input, textarea { width: 200px; height: 20px }</style>
<body style="margin:0;height:3000px">
<input id=name style="left:10px;top:10px">
<textarea id=story style="left:10px;top:50px;height:100px"></textarea>
<p id=prose style="left:10px;top:200px;width:400px">one two three four</p>
<div id=box style="left:10px;top:300px;width:50px;height:50px;background:red"></div>
<div id=bin style="left:300px;top:300px;width:100px;height:100px;background:#eee"></div>
<div id=inner style="left:600px;top:300px;width:100px;height:100px;overflow:scroll">
  <div style="width:900px;height:900px"></div></div>
<a id=link href="/second?from=link" style="left:10px;top:500px">second</a>
<script>
  events = [];
  const note = (event) => events.push([event.type, event.button, event.detail, event.shiftKey, event.ctrlKey]);
  for (const type of ["click", "dblclick", "contextmenu", "auxclick"]) prose.addEventListener(type, note);
  prose.onmouseenter = () => prose.style.color = "green";
  keys = [];
  onkeydown = (event) => keys.push("+" + event.key);
  onkeyup = (event) => keys.push("-" + event.key);
  let held = null;
  path = [];
  box.onpointerdown = (event) => { held = [event.clientX - box.offsetLeft, event.clientY - box.offsetTop]; };
  onpointermove = (event) => {
    if (!held) return;
    path.push([event.clientX, event.clientY]);
    box.style.left = event.clientX - held[0] + "px"; box.style.top = event.clientY - held[1] + "px";
  };
  onpointerup = () => { held = null; };
</script>"""
SECOND = "<!doctype html><h1>Second</h1><p hidden>unseen</p><script>times = (window.times ?? 0) + 1</script>"
PAGES: dict[str, str | SitePage] = {"/": FORM, "/second": SECOND}


def perform(*actions: Action) -> dict[str, object]:
    """Perform actions, and return the state of the page afterwards."""
    state: dict[str, object] = {}

    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"), *actions)
        told = """({events, keys, path, name: document.getElementById("name").value, story: story.value, y: scrollY,
          selected: String(getSelection()), inner: [inner.scrollLeft, inner.scrollTop],
          box: [box.offsetLeft, box.offsetTop], colour: prose.style.color})"""
        state.update(await evaluate(session, told))

    with serve_site(PAGES) as site:
        run_in_session(work, site)
    return state


def test_click_and_type() -> None:
    state = perform(Click(x=20, y=20), Type(text="Zoë 日本 👋"), Click(x=20, y=60), Type(text="a\nb\r\nc"))
    assert (state["name"], state["story"]) == ("Zoë 日本 👋", "a\nb\nc")


def test_clicks_of_every_kind() -> None:
    state = perform(
        Click(x=15, y=208),
        Click(x=15, y=208, count=2),
        Click(x=15, y=208, button="right"),
        Click(x=15, y=208, button="middle"),
        Click(x=15, y=208, keys=("shift",)),
        Click(x=15, y=208, keys=("CTRL",)),
    )
    assert state["events"] == [
        ["click", 0, 1, False, False],
        ["click", 0, 1, False, False],
        ["click", 0, 2, False, False],
        ["dblclick", 0, 2, False, False],
        ["contextmenu", 2, 0, False, False],
        ["auxclick", 2, 1, False, False],
        ["auxclick", 1, 1, False, False],
        ["click", 0, 1, True, False],
        ["click", 0, 1, False, True],
    ]


def test_double_and_triple_clicks_select_text() -> None:
    assert str(perform(Click(x=15, y=208, count=2))["selected"]).strip() == "one"
    assert str(perform(Click(x=15, y=208, count=3))["selected"]).strip() == "one two three four"


def test_keys_by_alias() -> None:
    state = perform(
        Click(x=20, y=20),
        Type(text="hello"),
        Keys(keys=("ctrl+a",)),
        Keys(keys=("BackSpace",)),
        Keys(keys=("SHIFT", "x")),
        Keys(keys=("shift+1",)),
        Keys(keys=("CTRL", "A")),
        Keys(keys=("End",)),
        Keys(keys=("é",)),
        Keys(keys=("Left",), repeat=2),
        Keys(keys=("KP_1",)),
    )
    assert state["name"] == "X1!é"


def test_held_keys() -> None:
    state = perform(KeyDown(key="Shift"), KeyUp(key="Shift"), Keys(keys=("a", "b"), hold=0.2))
    assert state["keys"] == ["+Shift", "-Shift", "+a", "+b", "-b", "-a"]


def test_held_key_modifies_the_next_click() -> None:
    state = perform(KeyDown(key="Shift"), Click(x=15, y=208), KeyUp(key="Shift"))
    assert state["events"] == [["click", 0, 1, True, False]]


def test_drag_along_a_path() -> None:
    state = perform(Drag(path=((20, 310), (200, 310), (330, 330))))
    assert state["box"] == [320, 320]
    assert [200, 310] in list(state["path"] or [])  # type: ignore[call-overload]


def test_drag_with_mouse_down_and_up() -> None:
    state = perform(MouseDown(x=20, y=310), Move(x=100, y=310), MouseUp(x=120, y=340))
    assert state["box"] == [110, 330]


def test_scroll_page_and_element_under_pointer() -> None:
    assert perform(Scroll(x=20, y=700, dy=400))["y"] == 400
    state = perform(Scroll(x=650, y=350, dx=120, dy=80))
    assert (state["y"], state["inner"]) == (0, [120, 80])


def test_move_hovers_and_sets_the_next_click() -> None:
    state = perform(Move(x=15, y=208), Click())
    assert state["colour"] == "green"
    assert state["events"] == [["click", 0, 1, False, False]]


def test_html_drag_and_drop() -> None:
    page = """<!doctype html><body style="margin:0"><div draggable=true style="width:50px;height:50px;background:red"
      ondragstart="event.dataTransfer.setData('text', 'the box')"></div>
      <div style="position:absolute;left:300px;top:0;width:100px;height:100px" ondragover="event.preventDefault()"
      ondrop="document.title = event.dataTransfer.getData('text')"></div>"""

    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"), Drag(path=((20, 20), (340, 50))))
        assert await evaluate(session, "document.title") == "the box"

    with serve_site({"/": page}) as site:
        run_in_session(work, site)


LISTS = """<!doctype html><style>select { position: absolute; left: 20px; width: 200px }</style>
<body style="margin:0">
<select id=colour style="top:20px" onchange="document.title += this.value"><option>red<option>green<option>blue</select>
<div style="position:absolute;left:20px;top:45px;width:200px;height:100px;background:#0f0"></div>
<iframe style="position:absolute;left:0;top:200px;border:0" srcdoc="<select onchange='top.document.title = this.value'>
<option>one<option>two</select>"></iframe>"""


def test_drop_down_list_does_not_open() -> None:
    hint = "Clicked. This is a list; choose with the arrow keys, or type the beginning of a choice:"

    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        below = [(150, 50), (150, 75), (150, 100)]
        before = (await session.perform([])).screenshot
        done = await session.perform([Click(x=50, y=30)])
        assert [one.text for one in done.observations] == [f"{hint} red (chosen); green; blue"]
        assert before is not None
        assert done.screenshot is not None
        assert await colors_at(session, done.screenshot, *below) == await colors_at(session, before, *below)
        await perform_all(session, Keys(keys=("Down",)), Type(text="b"))
        assert await evaluate(session, "[document.title, colour.value]") == ["greenblue", "blue"]
        assert await perform_all(session, Click(x=15, y=215)) == [f"{hint} one (chosen); two"]
        await perform_all(session, Keys(keys=("Down",)))
        assert await evaluate(session, "document.title") == "two"
        for opening in ("space", "Enter", "alt+Down"):
            (answer,) = await perform_all(session, Keys(keys=(opening,)))
            assert answer == f"The list stays closed. {hint.removeprefix('Clicked. ')} one; two (chosen)"

    with serve_site({"/": LISTS}) as site:
        run_in_session(work, site)


def test_follow_link_and_go_back() -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        done = await session.perform([Click(x=15, y=508)])
        assert done.url == f"{site.root}/second?from=link"
        assert await perform_all(session, ReadText()) == ["Second"]
        await perform_all(session, Back())
        assert await evaluate(session, "location.pathname") == "/"
        await perform_all(session, Forward())
        assert await evaluate(session, "location.pathname") == "/second"
        await perform_all(session, Click(button="back"))
        assert await evaluate(session, "location.pathname") == "/"
        request_count = len(site.requests)
        await perform_all(session, Reload())
        assert site.requests[request_count:] == ["GET /"]
        assert "no page" in (await perform_until_error(session, Back(), Back(), Back())).text

    with serve_site(PAGES) as site:
        run_in_session(work, site)


def test_read_text_returns_visible_text() -> None:
    page = """<!doctype html><h1>Hello   there</h1><script>let x = "no"</script><style>p {}</style>
      <p style="display:none">no</p>
      <p style="visibility:hidden">no</p><p>one<br>two <b>three</b></p><ul><li>first<li>second</ul>
      <input value="typed"><input type=password value="no"><input type=checkbox checked>
      <select><option>no<option selected>chosen</select>
      <iframe srcdoc="<p>framed"></iframe><div id=host></div>
      <script>host.attachShadow({mode: "open"}).innerHTML = "<p>shadow"</script>"""

    async def work(session: BrowserSession) -> None:
        (_, text) = await perform_all(session, Navigate(url=f"{site.root}/"), ReadText())
        assert text.split("\n") == [
            "Hello there",
            "one",
            "two three",
            "first",
            "second",
            "[typed] [hidden] [x] [chosen]",
            "shadow",
            "framed",
        ]

    with serve_site({"/": page}) as site:
        run_in_session(work, site)


def test_read_text_is_limited() -> None:
    async def work(session: BrowserSession) -> None:
        (_, text) = await perform_all(session, Navigate(url=f"{site.root}/"), ReadText())
        assert text == "x" * 100 + "\n[cut at 100 characters]"

    with serve_site({"/": "<!doctype html>" + "x" * 5000}) as site:
        run_in_session(work, site, settings=BrowserSettings(limits=SessionLimits(read_characters=100)))


def test_wait_is_limited() -> None:
    async def work(session: BrowserSession) -> None:
        assert await perform_all(session, Wait(seconds=60)) == ["Waited 0.3 seconds, the maximum."]

    run_in_session(work, settings=BrowserSettings(limits=SessionLimits(wait_seconds=0.3)))


def test_cursor_position_is_reported() -> None:
    async def work(session: BrowserSession) -> None:
        assert (await perform_all(session, Move(x=17, y=31), CursorPosition()))[1] == "The pointer is at (17, 31)."

    run_in_session(work)


def test_screenshot_shows_effects_of_the_click() -> None:
    slow = SitePage("<!doctype html><body style='background:#00ff00'>", delay=0.5)
    page = """<!doctype html><a href=/slow style="position:absolute;left:0;top:0">slow</a>
      <button style="position:absolute;left:100px;top:0"
        onclick="fetch('/part').then(() => document.title = 'there')">part</button>"""

    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"), Click(x=110, y=5))
        assert await evaluate(session, "document.title") == "there"
        done = await session.perform([Click(x=5, y=5)])
        assert done.url == f"{site.root}/slow"

    with serve_site({"/": page, "/slow": slow, "/part": SitePage("x", delay=0.5)}) as site:
        run_in_session(work, site)


def test_screenshots_within_and_after_a_batch() -> None:
    async def work(session: BrowserSession) -> None:
        done = await session.perform([Navigate(url=f"{site.root}/"), Screenshot(), Click(x=15, y=508), Screenshot()])
        first, second = done.observations[1], done.observations[3]
        assert first.image is not None
        assert done.screenshot is not None
        assert first.image.data != done.screenshot.data
        assert (second.kind, second.image) == ("screenshot", None)

    with serve_site(PAGES) as site:
        run_in_session(work, site)


def test_sessions_share_nothing() -> None:
    page = """<!doctype html><script>
      document.title = document.cookie + localStorage.x; document.cookie = 'a=b'; localStorage.x = 1</script>"""

    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"))
        assert await evaluate(session, "document.title") == "undefined"
        await perform_all(session, Reload())
        assert await evaluate(session, "document.title") == "a=b1"

    with serve_site({"/": page}) as site:
        run_in_session(work, site)
        run_in_session(work, site)


def test_two_sessions_at_once() -> None:
    async def work(session: BrowserSession) -> None:
        await perform_all(session, Navigate(url=f"{site.root}/"), Click(x=20, y=20), Type(text="mine"))
        await asyncio.sleep(0.1)
        assert await evaluate(session, "document.getElementById('name').value") == "mine"

    async def both(session: BrowserSession) -> None:
        from toolwire.runtime.tools.browser import open_session

        async with open_session(session.settings) as other:
            await asyncio.gather(work(session), work(other))

    with serve_site(PAGES) as site:
        run_in_session(both, site)
