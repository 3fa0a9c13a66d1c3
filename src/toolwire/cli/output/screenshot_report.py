"""An HTML page of a run's screenshots, with the actions that the model took on each and their results."""

import base64
import binascii
import html
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolwire.canonical.content import Inline, Media, ToolResult
from toolwire.cli.inputs import BadInput
from toolwire.cli.output.run_report import (
    RunReport,
    call_state,
    content_text,
    format_time,
    message_text,
    parse_arguments,
    turn_calls,
)
from toolwire.codec.encoding.media import image_size
from toolwire.runtime.run.recorded_run import RecordedCall, RecordedTurn

_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif"}
_MAX_TEXT_CHARS = 4000
_ActionList = list[dict[str, Any]]


def write_screenshots(report: RunReport, folder: Path) -> tuple[Path, int]:
    """Write the HTML page of a run and its images to `folder`; return the page's path and the image count."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        builder = _ScreenshotPage(report, folder)
        page = folder / "index.html"
        page.write_text("\n".join(builder.html_lines()), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"can't write to {folder}: {error.strerror}") from None
    return page, builder.count


class _ScreenshotPage:
    """Builds the HTML of the page, and writes the images beside it."""

    def __init__(self, report: RunReport, folder: Path) -> None:
        self.count = 0
        self._report = report
        self._folder = folder
        self._calls = [(turn.number, *call) for turn in report.turns for call in turn_calls(turn)]

    def html_lines(self) -> Iterator[str]:
        """Yield the HTML of the complete page, and write its images on the way."""
        report = self._report
        yield _PAGE_HEAD.format(title=html.escape(report.id))
        yield f"<header><h1>{html.escape(report.id)}</h1>"
        yield f"<p>{html.escape(f'{report.metadata.model}, {format_time(report.started_at)}, {report.state}')}</p>"
        yield f"<blockquote>{self._escape_text(report.prompt)}</blockquote>"
        if self._calls:
            yield "<p class=note>Numbers mark where the actions of the next call took place.</p>"
        yield "</header>"
        for turn in report.turns:
            yield from self._turn_html(turn)
        if report.end_event is not None and report.end_event.reason:
            yield f"<footer>{self._escape_text(f'{report.end_event.stopped}: {report.end_event.reason}')}</footer>"
        yield "</main>"

    def _turn_html(self, turn: RecordedTurn) -> Iterator[str]:
        """Yield the HTML of a turn: its text and its calls."""
        yield f"<section><h2>Turn {turn.number}</h2>"
        if text := "".join(map(message_text, turn.messages)).strip():
            yield f"<p class=text>{self._escape_text(text)}</p>"
        for index, (number, id, name, arguments) in enumerate(self._calls):
            if number == turn.number:
                next_arguments = self._calls[index + 1][3] if index + 1 < len(self._calls) else ""
                yield from self._call_html(name, arguments, turn.calls.get(id), _parse_actions(next_arguments))
        yield "</section>"

    def _call_html(
        self, name: str, arguments: str, call: RecordedCall | None, next_actions: _ActionList
    ) -> Iterator[str]:
        """Yield the HTML of a call, with `next_actions` marked on its last screenshot."""
        state = call_state(call)
        approval = "" if call is None or call.outcome is None else f", {call.outcome.record.approval}"
        yield "<article><div>"
        label = f"<small class={_state_class(state)}>{self._escape_text(state + approval)}</small>"
        yield f"<h3>{self._escape_text(name)} {label}</h3>"
        yield f"<pre class=arguments>{self._escape_text(_format_actions(arguments))}</pre>"
        if call is not None and call.outcome is not None:
            yield from self._result_html(call.outcome.result, next_actions)
        yield "</div></article>"

    def _result_html(self, result: ToolResult, next_actions: _ActionList) -> Iterator[str]:
        """Yield the HTML of a result, with `next_actions` marked on its last screenshot."""
        other_parts = [part for part in result.content or () if not isinstance(part, Media)]
        if text := content_text(tuple(other_parts)).strip():
            yield f"<pre class=result>{self._escape_text(text)}</pre>"
        yield "</div><div>"
        images = [part for part in result.content or () if isinstance(part, Media) and isinstance(part.source, Inline)]
        for part in images:
            marks = "".join(_mark_html(part, next_actions)) if part is images[-1] else ""
            name = self._write_image(part)
            yield f'<figure><a href="{name}"><img src="{name}" alt="screenshot"></a>{marks}</figure>'

    def _write_image(self, part: Media) -> str:
        """Write an image file beside the page, and return its file name."""
        self.count += 1
        name = f"{self.count:03}.{_SUFFIXES.get(part.media_type or '', 'png')}"
        source = part.source
        data = source.data if isinstance(source, Inline) else ""
        with suppress(binascii.Error):  # tools may return invalid data
            (self._folder / name).write_bytes(base64.b64decode(data))
        return name

    def _escape_text(self, text: str) -> str:
        """Redact, shorten and HTML-escape a text."""
        text = self._report.redactor.redact_text(text)
        return html.escape(
            text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]}\n... {len(text)} characters in total"
        )


def _parse_actions(arguments: str) -> _ActionList:
    """Return the computer actions in the arguments of a call."""
    actions = parse_arguments(arguments).get("actions")
    return [action for action in actions if isinstance(action, dict)] if isinstance(actions, list) else []


def _format_actions(arguments: str) -> str:
    """Format computer actions one per line; other arguments as they are."""
    if not (actions := _parse_actions(arguments)):
        return arguments
    return "\n".join(" ".join([str(action.get("kind")), *_format_settings(action)]) for action in actions)


def _format_settings(action: dict[str, Any]) -> list[str]:
    """Format each field of an action as `name=value`, without its kind."""
    fields = {name: value for name, value in action.items() if name != "kind"}
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]


def _mark_html(screenshot: Media, actions: _ActionList) -> Iterator[str]:
    """Yield the HTML that marks on a screenshot where the actions point."""
    if (size := image_size(screenshot)) is None:
        return
    for number, action in enumerate(actions, 1):
        points = list(_action_points(action))
        if len(points) > 1:
            line = " ".join(f"{x},{y}" for x, y in points)
            yield f'<svg viewBox="0 0 {size[0]} {size[1]}"><polyline points="{line}"/></svg>'
        for x, y in points[:1]:
            position = f"left:{100 * x / size[0]:.2f}%;top:{100 * y / size[1]:.2f}%"
            yield f'<i style="{position}" title="{html.escape(str(action.get("kind")))}">{number}</i>'


def _action_points(action: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield the points (x, y) of an action: its path, the corners of its region, or a single point."""
    x0, y0, x1, y1 = (action.get(name) for name in ("x0", "y0", "x1", "y1"))
    outline = [[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]]
    path = action.get("path") or (outline if "x0" in action else [[action.get("x"), action.get("y")]])
    for point in path if isinstance(path, list) else ():
        if isinstance(point, list) and len(point) == 2 and all(isinstance(coordinate, int) for coordinate in point):
            yield point[0], point[1]


def _state_class(state: str) -> str:
    """Return the CSS class for the state of a call."""
    return "good" if state == "ok" else "bad"


_PAGE_HEAD = """<!doctype html><html lang=en><meta charset=utf-8>
<meta name=viewport content="width=device-width, initial-scale=1">
<meta http-equiv=Content-Security-Policy content="default-src 'none'; img-src 'self' file:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
  :root {{ color-scheme: light dark; --line: light-dark(#ddd, #444); --soft: light-dark(#f6f6f6, #222) }}
  body {{ margin: 0; font: 15px/1.5 system-ui, sans-serif; background: light-dark(#fff, #181818) }}
  main {{ max-width: 1400px; margin: 0 auto; padding: 32px 24px 64px }}
  h1 {{ font-size: 20px; margin: 0 }} h1 + p {{ margin: 0; color: GrayText }}
  h2 {{ font-size: 15px; margin: 40px 0 8px; padding-top: 12px; border-top: 1px solid var(--line) }}
  article {{ display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: 24px; margin: 8px 0 24px }}
  article > div:first-child {{ align-self: start; position: sticky; top: 8px }}
  @media (max-width: 800px) {{ article {{ display: block }} article > div:first-child {{ position: static }} }}
  h3 {{ font-size: 14px; margin: 8px 0 4px }} h3 small {{ font-weight: normal; margin-left: 8px }}
  .good {{ color: light-dark(#176b2c, #7ccf92) }} .bad {{ color: light-dark(#a3231a, #f29a92) }}
  blockquote {{ margin: 16px 0 0; padding: 8px 16px; border-left: 3px solid var(--line); white-space: pre-wrap }}
  .text {{ white-space: pre-wrap; margin: 8px 0 }}
  pre {{ margin: 4px 0; padding: 8px 12px; font: 13px/1.5 ui-monospace, monospace; white-space: pre-wrap;
    overflow-wrap: anywhere; border-radius: 6px }}
  .arguments {{ background: var(--soft) }}
  .result {{ border: 1px solid var(--line); max-height: 300px; overflow: auto }}
  figure {{ position: relative; margin: 8px 0; border: 1px solid var(--line); border-radius: 6px; overflow: hidden }}
  img {{ display: block; width: 100%; height: auto }}
  svg {{ position: absolute; inset: 0; fill: none; stroke: #d6006ccc; stroke-width: 4; pointer-events: none }}
  i {{ position: absolute; translate: -50% -50%; min-width: 20px; border-radius: 10px; background: #d6006ccc;
    color: #fff; font: bold 12px/20px system-ui; text-align: center; outline: 2px solid #fff }}
  footer {{ margin-top: 32px }} footer, .note {{ color: GrayText }}
</style><main>"""
