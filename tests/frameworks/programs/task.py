"""The tasks of a framework program and their results, as JSON lines on the standard streams.

A program performs many tasks, because loading a framework takes longer than a task.
"""

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

import toolwire as tw


class Task:
    """One task: where to send requests, the prompt, and the tools, which record their calls."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.base_url: str = options["base_url"]
        self.model: str = options["model"]
        self.protocol: str = options["protocol"]
        self.prompt: str = options["task"]
        self.variant: str = options["variant"]
        self.in_process: bool = options["place"] == "process"
        self.calls: list[list[Any]] = []
        self._upstream: dict[str, Any] = {name: options[name] for name in ("upstream", "base_url", "api_key")}
        self._weather: dict[str, str] = options["weather"]
        self._note_result: str = options["note_result"]

    @property
    def config(self) -> tw.Config:
        """The configuration of an in-process gateway: one provider, named after its protocol."""
        name = self._upstream["upstream"]
        settings = {key: self._upstream[key] for key in ("base_url", "api_key")}
        return msgspec.convert({"providers": {name: {"protocol": name, **settings}}}, tw.Config)

    def get_weather(self, city: str) -> str:
        """Return the weather in a city."""
        self.calls.append(["get_weather", city])
        return self._weather[city]

    def save_note(self, text: str, number: int) -> str:
        """Save a note."""
        self.calls.append(["save_note", text, number])
        return self._note_result


async def _perform(line: str, perform: Callable[[Task], Awaitable[str]]) -> dict[str, Any]:
    """Perform one task, and return its result or the error."""
    task = Task(json.loads(line))
    try:
        text = await perform(task)
    except Exception:  # noqa: BLE001 - reported as the outcome of the task
        return {"error": traceback.format_exc()[-2000:]}
    return {"calls": task.calls, "text": text}


async def _perform_all(perform: Callable[[Task], Awaitable[str]]) -> None:
    """Perform tasks until the input ends."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(f"result: {json.dumps(await _perform(line, perform))}\n")
        sys.stdout.flush()


def perform_tasks(perform: Callable[[Task], Awaitable[str]]) -> None:
    """Read tasks from stdin, and write their results to stdout."""
    asyncio.run(_perform_all(perform))
