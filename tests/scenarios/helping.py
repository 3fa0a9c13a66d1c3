"""A task of three steps, for what runs a loop of tool calls by itself: two calls at once, one with awkward arguments,
and an answer that only tool results contain.
"""

import json
from typing import Any

import msgspec

from tests.scenarios.watching import Place
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

TASK = "Compare Zürich and Oslo, and keep what you find."
TOWNS = {"Zürich": "snow, 4711 mm", "Oslo": 'fog → "thick"\n'}
TEXT, NUMBER = 'Grüße, "Welt"\n\t𝄞 \\ </script> \u2028 日本', 2**53 - 1
# What of it no client escapes, however it wraps results.
_SIGNS = {"Zürich": "4711", "Oslo": "thick"}
KEPT = "kept as 0815"
CALLS = [("get_weather", "Zürich"), ("get_weather", "Oslo"), ("save_note", TEXT, NUMBER)]

_SCRIPT = """
[[turns]]
when = "Compare"
calls = [{name = "get_weather", arguments = {city = "Zürich"}}, {name = "get_weather", arguments = {city = "Oslo"}}]

[[turns]]
when = "Compare"
calls = [{name = "save_note", arguments = {text = "%s", number = %d}}]
"""


class Toolbox:
    """The tools, as a program has them: functions. `calls` is what was called, with what."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def get_weather(self, city: str) -> str:
        """The weather in a city.

        Args:
            city: Which city.
        """
        self.calls.append(("get_weather", city))
        return TOWNS[city]

    def save_note(self, text: str, number: int) -> str:
        """Saves a note.

        Args:
            text: What it says.
            number: Which it is.
        """
        self.calls.append(("save_note", text, number))
        return KEPT


def demanding() -> Simulator:
    """An upstream that, in every protocol, wants these three steps once."""
    text = "".join(f"\\U{ord(one):08x}" for one in TEXT)
    return Simulator(require_key=True, script=parse_script((_SCRIPT % (text, NUMBER)).encode(), "script"))


def set_the_task(place: Place) -> Place:
    """The same place with nothing done yet: starting another one takes longer than the task."""
    place.forget()
    place.upstream._app = demanding()
    return place


def check_the_upstream(place: Place, protocol: str, steps: int = 3) -> None:
    """It refused nothing, and got back each call that it made with the result of that call."""
    assert [seen.status for seen in place.upstream.seen] == [200] * steps
    last = place.upstream.seen[-1]
    calls, results = last.calls(protocol), last.results(protocol)
    assert [call.name for call in calls] == ["get_weather", "get_weather", "save_note"]
    assert [result.call_id for result in results] == [call.id for call in calls]
    for call, result in zip(calls, results, strict=True):
        assert _SIGNS.get(json.loads(call.arguments).get("city"), KEPT).encode() in msgspec.json.encode(result)
