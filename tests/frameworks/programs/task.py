"""The task of a framework program and its result, as JSON on the standard streams."""

import json
import sys
from typing import Any

TASK: dict[str, Any] = json.load(sys.stdin)
CALLS: list[list[Any]] = []


def get_weather(city: str) -> str:
    """Return the weather in a city."""
    CALLS.append(["get_weather", city])
    weather: str = TASK["weather"][city]
    return weather


def save_note(text: str, number: int) -> str:
    """Save a note."""
    CALLS.append(["save_note", text, number])
    result: str = TASK["note_result"]
    return result


def write_result(text: str) -> None:
    json.dump({"calls": CALLS, "text": text}, sys.stdout)
