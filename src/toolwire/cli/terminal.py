"""A run on a terminal: what is under way moves below what is done."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from toolwire.runtime.events import CallEnded, RunEnded, RunStarted

from .printable import in_one_line
from .view import Lines

_PER_SECOND = 10
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class _Moving:
    """One line for each thing that is under way: what it is, how far it is, and since when."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.under_way: dict[str, tuple[str, float]] = {}
        self.progress: dict[str, str] = {}

    def __rich__(self) -> Group:
        return Group(*(self._line(id, *one) for id, one in list(self.under_way.items())))

    def _line(self, id: str, what: str, since: float) -> Text:
        progress = f": {said}" if (said := self.progress.get(id)) else ""
        told = in_one_line(f"{what}{progress}", self._width - 12)
        now = time.monotonic()
        frame = _FRAMES[int(now * _PER_SECOND) % len(_FRAMES)]
        return Text.assemble((frame, "cyan"), f" {told} ", (f"{now - since:.0f}s", "dim"), no_wrap=True)


class Terminal(Lines):
    def __init__(self, workspace: str) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        super().__init__(width=self._console.width, workspace=workspace)
        self._moving = _Moving(self._console.width)
        self._live: Live | None = None
        self._thinks = False

    def started(self, event: RunStarted) -> None:
        self.line(f"{in_one_line(event.model, 100)}{', resumed' if event.resumed else ''}", "dim")

    def turn(self) -> None:
        self._move("", "thinking")

    def text(self, text: str) -> None:
        self._rest("")
        if self._thinks:
            self._break()
            self._thinks = self._said = False
        super().text(text)

    def turn_ended(self) -> None:
        self._rest("")
        super().turn_ended()

    def thought(self, text: str) -> None:
        self._rest("")
        self._console.print(Text(text, style="dim italic"), end="", soft_wrap=True)
        self._thinks, self._midway = True, not text.endswith("\n")

    def call_started(self, id: str) -> None:
        self._rest("")
        self._move(id, self._calls.get(id, ""))

    def call_progressed(self, id: str, text: str) -> None:
        self._moving.progress[id] = text

    def call_ended(self, event: CallEnded) -> None:
        self._rest("")
        self._rest(event.call_id)
        super().call_ended(event)

    def ended(self, event: RunEnded) -> None:
        self.close()
        super().ended(event)

    def close(self) -> None:
        self._moving.under_way.clear()
        self._stop()
        super().close()

    def line(self, text: str, style: str = "") -> None:
        self._break()
        self._console.print(Text(text, style=style), soft_wrap=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._stop()
        with super().paused():
            yield
        if self._moving.under_way:
            self._go()

    def _move(self, id: str, what: str) -> None:
        self._moving.under_way[id] = (what, time.monotonic())
        self._go()

    def _rest(self, id: str) -> None:
        self._moving.under_way.pop(id, None)
        if not self._moving.under_way:
            self._stop()

    def _go(self) -> None:
        if self._live is None:
            self._break()
            self._live = Live(
                self._moving,
                console=self._console,
                transient=True,
                refresh_per_second=_PER_SECOND,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
