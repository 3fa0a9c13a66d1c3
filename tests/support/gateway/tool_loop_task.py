"""A task of three steps for SDKs that run their own tool loop.

It has two parallel calls, one call with difficult arguments, and an answer that only tool results contain.
"""

import json
from typing import Any

import msgspec

from tests.support.gateway.setup import GatewaySetup
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

TASK = "Compare Zürich and Oslo, and keep what you find."
WEATHER_BY_CITY = {"Zürich": "snow, 4711 mm", "Oslo": 'fog → "thick"\n'}
NOTE_TEXT, NOTE_NUMBER = 'Grüße, "Welt"\n\t𝄞 \\ </script> \u2028 日本', 2**53 - 1
# Text that no client escapes, however it wraps results.
_RESULT_MARKERS = {"Zürich": "4711", "Oslo": "thick"}
NOTE_RESULT = "kept as 0815"
EXPECTED_CALLS = [("get_weather", "Zürich"), ("get_weather", "Oslo"), ("save_note", NOTE_TEXT, NOTE_NUMBER)]

_SCRIPT = """
[[turns]]
when = "Compare"
calls = [{name = "get_weather", arguments = {city = "Zürich"}}, {name = "get_weather", arguments = {city = "Oslo"}}]

[[turns]]
when = "Compare"
calls = [{name = "save_note", arguments = {text = "%s", number = %d}}]
"""


class TaskTools:
    """The tools as plain functions; `calls` records names and arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def get_weather(self, city: str) -> str:
        """Return the weather in a city.

        Args:
            city: Which city.
        """
        self.calls.append(("get_weather", city))
        return WEATHER_BY_CITY[city]

    def save_note(self, text: str, number: int) -> str:
        """Save a note.

        Args:
            text: What it says.
            number: Which it is.
        """
        self.calls.append(("save_note", text, number))
        return NOTE_RESULT


def task_simulator() -> Simulator:
    """Return a simulated upstream that plays the three steps once in every protocol."""
    text = "".join(f"\\U{ord(character):08x}" for character in NOTE_TEXT)
    return Simulator(require_key=True, script=parse_script((_SCRIPT % (text, NOTE_NUMBER)).encode(), "script"))


def assign_task(setup: GatewaySetup) -> GatewaySetup:
    """Reset the upstream to the start of the task, which is faster than starting another gateway."""
    setup.reset()
    setup.upstream._app = task_simulator()
    return setup


def check_upstream_history(setup: GatewaySetup, protocol: str, steps: int = 3) -> None:
    """Check that the upstream rejected nothing and got each of its calls back with the matching result."""
    assert [exchange.status for exchange in setup.upstream.exchanges] == [200] * steps
    last = setup.upstream.exchanges[-1]
    calls, results = last.calls(protocol), last.results(protocol)
    assert [call.name for call in calls] == ["get_weather", "get_weather", "save_note"]
    assert [result.call_id for result in results] == [call.id for call in calls]
    for call, result in zip(calls, results, strict=True):
        assert _RESULT_MARKERS.get(json.loads(call.arguments).get("city"), NOTE_RESULT).encode() in msgspec.json.encode(
            result
        )
