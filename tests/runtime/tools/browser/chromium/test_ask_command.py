"""`toolwire ask --browser`, and the reports of its runs."""

import base64
import json
import re
from pathlib import Path

import msgspec
import pytest

from tests.runtime.tools.browser.chromium.form_task import DONE, INJECTED_ORDERS, serve_form, task_turns
from tests.support.runtime.cli_process import run_toolwire, write_script
from toolwire.canonical.content import Inline, Media
from toolwire.codec.encoding.media import Size, image_size

PLAYED = [
    {"actions": msgspec.to_builtins(turn.actions)} if turn.actions else {"text": turn.text} for turn in task_turns()
]


def screenshot_size(path: Path) -> Size | None:
    data = base64.b64encode(path.read_bytes()).decode()
    return image_size(Media(kind="image", media_type="image/png", source=Inline(data=data)))


def test_task_is_performed_shown_and_replayed(tmp_path: Path) -> None:
    write_script(tmp_path, *PLAYED)
    with serve_form(with_dialog=True) as site:
        done = run_toolwire(tmp_path, "ask", "Send the <form>.", "--browser", site.root, "--allow", "computer")
        assert (done.code, done.out) == (0, "It is done.\n"), done.err
        assert DONE in site.requests
        request_count = len(site.requests)
        assert run_toolwire(tmp_path, "runs", "show", "last").out.count("[image, 1280 x 800]") == 8
        seen = run_toolwire(tmp_path, "runs", "show", "last", "--pictures", "seen")
        assert seen.out == "8 pictures: seen/index.html\n", seen.err
        with (tmp_path / "toolwire.toml").open("a") as configuration:
            configuration.write('[browser]\nchromium = "none is needed"\n')
        replayed = run_toolwire(tmp_path, "runs", "replay", "last")
        assert (replayed.code, replayed.out.splitlines()[-1]) == (0, "no difference"), replayed.err
        assert len(site.requests) == request_count
    page = (tmp_path / "seen" / "index.html").read_text("utf-8")
    assert "Send the &lt;form&gt;." in page
    assert INJECTED_ORDERS in page
    assert re.findall(r'<i style="([^"]*)" title="(\w+)">', page) == [
        ("left:11.72%;top:6.88%", "click"),
        ("left:9.38%;top:27.50%", "drag"),
        ("left:15.62%;top:47.50%", "scroll"),
        ("left:10.94%;top:65.00%", "click"),
    ]
    assert re.findall(r'<polyline points="([^"]*)"', page) == ["120,220 420,220"]
    names = [f"{number:03}.png" for number in range(1, 9)]
    assert [name for name in names if f'src="{name}"' in page] == names
    sizes = {screenshot_size(tmp_path / "seen" / name) for name in names}
    assert sizes == {(1280, 800)}


def test_simulated_model_performs_actions_without_script(tmp_path: Path) -> None:
    with serve_form() as site:
        prompt = 'computer {"actions": [{"kind": "click", "x": 140, "y": 520}, {"kind": "read_text"}]}'
        done = run_toolwire(tmp_path, "ask", prompt, "--browser", site.root, "--allow", "computer")
        assert done.code == 0, done.err
        assert "Order 4711 is on its way." in done.out
        assert "GET /done?name=&handle=100&list=0" in site.requests


def test_only_read_only_actions_run_without_rules(tmp_path: Path) -> None:
    write_script(tmp_path, *PLAYED)
    with serve_form() as site:
        done = run_toolwire(tmp_path, "ask", "Send the form.", "--browser", site.root, "--json")
        assert "GET /" in site.requests
        assert DONE not in site.requests
    statuses = [event["status"] for event in done.events if event["event"] == "call_ended"]
    assert statuses == ["ok", "denied", "denied", "denied", "denied", "ok", "denied", "ok"]


def test_configuration_sets_size_and_hosts(tmp_path: Path) -> None:
    with serve_form() as site:
        elsewhere = {"actions": [{"kind": "navigate", "url": site.root}]}
        more = '[browser]\nwidth = 800\nheight = 600\nredact = ["#send"]\nactions = ["navigate", "read_text"]\n'
        write_script(tmp_path, elsewhere, {"actions": [{"kind": "read_text"}]}, {"text": "Done."}, extra_config=more)
        done = run_toolwire(
            tmp_path, "ask", "Look.", "--browser", "--allow-host", site.name, "--allow", "computer(kind=navigate)"
        )
        assert (done.code, done.out) == (0, "Done.\n"), done.err
        assert "GET /" in site.requests
    report = json.loads(run_toolwire(tmp_path, "runs", "show", "last", "--json").out)
    read = report["turns"][1]["calls"][0]["result"]
    assert "a long list" in read
    assert "Send" not in read
    run_toolwire(tmp_path, "runs", "show", "last", "--pictures", "seen")
    assert screenshot_size(tmp_path / "seen" / "001.png") == (800, 600)


@pytest.mark.parametrize(
    ("start", "more", "message"),
    [
        ("file:///etc/passwd", "", "the browser can't open file:///etc/passwd: only http and https"),
        (
            "http://127.0.0.1/",
            '[browser]\nchromium = "no-such-program"\n',
            "'no-such-program' is not an executable program",
        ),
    ],
)
def test_browser_errors_are_reported_before_the_model_is_called(
    tmp_path: Path, start: str, more: str, message: str
) -> None:
    write_script(tmp_path, {"text": "Done."}, extra_config=more)
    done = run_toolwire(tmp_path, "ask", "Look.", "--browser", start)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_hosts_without_a_browser_are_bad_input(tmp_path: Path) -> None:
    done = run_toolwire(tmp_path, "ask", "Look.", "--allow-host", "example.com")
    assert done.code == 2
    assert "add --browser" in done.err
