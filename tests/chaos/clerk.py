"""The agent of the chaos run, for `toolwire work --agent tests.chaos.clerk:clerk`.

Its tools append lines to a log of effects: run, call, tool, entry. They take their time, so that workers die before,
during and after an effect.
"""

import os
import random
import time
from pathlib import Path

from tests.chaos.environment import CONFIG_VARIABLE, EFFECTS_VARIABLE, STORE_VARIABLE
from toolwire import Agent, Policy, ToolContext, tool
from toolwire.gateway.config import load_config

_MAX_PAUSE = 0.4


def _take_effect(context: ToolContext, entry: str) -> str:
    """Append a line, with a pause before and after it."""
    pauses = random.Random(f"{context.run} {context.id} {os.getpid()}")
    time.sleep(pauses.uniform(0, _MAX_PAUSE))
    with Path(os.environ[EFFECTS_VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(f"{context.run} {context.id} {context.tool} {entry}\n")
    time.sleep(pauses.uniform(0, _MAX_PAUSE))
    return f"done: {entry}"


@tool
def pay(context: ToolContext, entry: str) -> str:
    """Pay an invoice."""
    return _take_effect(context, entry)


@tool(idempotent=True)
def label(context: ToolContext, entry: str) -> str:
    """Set a label."""
    return _take_effect(context, entry)


@tool(read_only=True)
def look(context: ToolContext, entry: str) -> str:
    """Look something up."""
    return _take_effect(context, entry)


clerk = Agent(
    "claude-sim",
    tools=[pay, label, look],
    policy=Policy(allow=["*"]),
    journal=os.environ[STORE_VARIABLE],
    config=load_config(Path(os.environ[CONFIG_VARIABLE])).config,
    name="clerk",
)
