"""A worker process whose agent leaves traces of its effects: `python -m ... STORE FOLDER LEASE_SECONDS`.

The model calls `look`, then `pay` for each amount of the prompt, and then answers. A call waits while the file
`hold-TOOL` exists in the folder.
"""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.support.runtime.scripted_agent import model_call, model_turn, text_turn
from toolwire import Agent, Policy, tool
from toolwire.canonical.content import Text
from toolwire.canonical.events import Event
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Request
from toolwire.journal.leases import LeaseTerms
from toolwire.journal.runs import RunStore
from toolwire.worker import Worker

LEASE_SECONDS = 120.0  # longer than a busy machine keeps a process from renewing it
QUEUE = "agent:payer"


class PayingModel:
    """A model whose turn depends only on the conversation."""

    name = "paying"

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        prompt = request.messages[0].parts[0]
        assert isinstance(prompt, Text)
        amounts = [int(word) for word in prompt.text.split()]
        number = sum(message.role == "assistant" for message in request.messages)
        if number == 0:
            turn = model_turn(model_call("look", {}, id="look"))
        elif number <= len(amounts):
            turn = model_turn(model_call("pay", {"amount": amounts[number - 1]}, id=f"pay-{number}"))
        else:
            turn = text_turn("done")
        for event in unfold(turn):
            yield event

    async def close(self) -> None:
        pass


def lease_terms(seconds: float = LEASE_SECONDS) -> LeaseTerms:
    return LeaseTerms(seconds=seconds, renewal_interval=0.3)


def paying_agent(store: RunStore, folder: Path, policy: Policy | None = None) -> Agent:
    def act(name: str, effect: str) -> None:
        with (folder / "effects").open("a") as file:
            file.write(f"{effect}\n")
        (folder / f"began-{name}").touch()
        while (folder / f"hold-{name}").exists():
            time.sleep(0.01)

    @tool(read_only=True)
    def look() -> str:
        """Looks."""
        act("look", "look")
        return "seen"

    @tool
    def pay(amount: int) -> str:
        """Pays."""
        act("pay", f"pay {amount}")
        return "paid"

    return Agent(PayingModel(), tools=[look, pay], policy=policy or Policy(allow=["*"]), journal=store, name="payer")


def write_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def serve(store: RunStore, folder: Path) -> None:
    agent = paying_agent(store, folder)
    worker = Worker(store, lambda *_: nullcontext(agent), [QUEUE], log=write_line, grace=60)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    write_line("ready")
    await worker.serve()


def main(arguments: Any) -> None:
    store = RunStore(arguments[0], lease_terms=lease_terms(float(arguments[2])))
    asyncio.run(serve(store, Path(arguments[1])))
    store.close()


if __name__ == "__main__":
    main(sys.argv[1:])
