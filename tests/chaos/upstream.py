"""The simulated providers of the chaos run: `python -m tests.chaos.upstream PORT FILE`.

They are strict, answer each job with a text of its own, and write to the file what each request asked for, what they
wrote in response, and what it costs by their own count.
"""

import json
import re
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import uvicorn

from tests.chaos.dialects import DIALECTS, Dialect
from toolwire.canonical.request import Request
from toolwire.upstream.asgi import Receive, Scope, Send
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.prompt import read_prompt
from toolwire.upstream.simulator.script import Script, ScriptedCall, ScriptedTurn

_JOB = re.compile(r"\[(?P<tag>job-\d+) words=(?P<words>\d+) pace=(?P<pace>[\d.]+) cut=(?P<cut>\d+)\]")
_PLAN = re.compile(r"\[(?P<tag>run-\d+) plan=(?P<plan>[\w:,;-]+)\]")
_TAG = re.compile(rb"\[((?:job|run)-\d+) (?:words|plan)=")
_MODEL_DELAY = 0.2


def write_job(tag: str, *, words: int, pace: float, cut: int = 0) -> str:
    """Return a prompt that asks for a text of this length and speed; `cut` ends it after this many chunks."""
    return f"[{tag} words={words} pace={pace:g} cut={cut}]"


def write_plan(tag: str, turns: list[list[str]]) -> str:
    """Return a prompt that asks for turns of calls, each `TOOL:ENTRY`."""
    return f"[{tag} plan={';'.join(','.join(calls) for calls in turns)}]"


def job_text(tag: str, words: int) -> str:
    """Return the text that answers a job."""
    return " ".join(f"{tag}.{number}" for number in range(words))


class JobScript(Script):
    """Answers each job as its prompt asks, however often it is sent."""

    def __init__(self) -> None:
        super().__init__(())

    def next_turn(self, request: Request, protocol: str) -> ScriptedTurn | None:
        text = read_prompt(request).text
        if (job := _JOB.search(text)) is not None:
            pace, cut = float(job["pace"]), int(job["cut"]) or None
            is_stream = request.stream is not False
            delay = 0 if is_stream else pace * int(job["words"])
            return ScriptedTurn(text=job_text(job["tag"], int(job["words"])), pace=pace, delay=delay, cut=cut)
        if (plan := _PLAN.search(text)) is None:
            return None
        roles = ("", *(message.role for message in request.messages))
        replies = sum(previous != "assistant" == role for previous, role in pairwise(roles))
        turns = plan["plan"].split(";")
        if replies >= len(turns):
            return ScriptedTurn(text=f"{plan['tag']} is done", delay=_MODEL_DELAY)
        calls = [call.partition(":") for call in turns[replies].split(",")]
        return ScriptedTurn(
            calls=tuple(ScriptedCall(name=tool, arguments={"entry": entry}) for tool, _, entry in calls),
            delay=_MODEL_DELAY,
        )


class CountingSimulator:
    """A simulator that writes down all requests and responses, as an ASGI app."""

    def __init__(self, path: Path) -> None:
        self._simulator = Simulator(script=JobScript(), require_key=True)
        self._file = path.open("a", encoding="utf-8")
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._simulator(scope, receive, send)
            return
        self._count += 1
        number, body, written, status, has_ended = self._count, bytearray(), bytearray(), 0, False

        async def recording_receive() -> Any:
            message = await receive()
            if message["type"] == "http.request":
                body.extend(message.get("body", b""))
                if not message.get("more_body"):
                    self._write(number, "begun", tags=_find_tags(bytes(body)), path=scope["path"])
            return message

        async def recording_send(message: Any) -> None:
            nonlocal status, has_ended
            status = message.get("status", status)
            written.extend(message.get("body", b""))
            await send(message)
            has_ended = message["type"] == "http.response.body" and not message.get("more_body")

        try:
            await self._simulator(scope, recording_receive, recording_send)
        finally:
            self._write(number, "ended", status=status, **_count_response(scope["path"], bytes(written), has_ended))

    def _write(self, number: int, event: str, **fields: Any) -> None:
        """Append a line to the file."""
        self._file.write(json.dumps({"number": number, "event": event, "at": time.time(), **fields}) + "\n")
        self._file.flush()


def _find_tags(body: bytes) -> list[str]:
    """Return the tags of all jobs in the conversation of a request, in order."""
    return [*dict.fromkeys(tag.decode() for tag in _TAG.findall(body))]


def _count_response(path: str, written: bytes, has_ended: bool) -> dict[str, Any]:
    """Read a response with the clients' readers."""
    dialect = dialect_of(path)
    reading = dialect.read_body(written) if written.startswith(b"{") else dialect.read_stream(written)
    if not has_ended or not reading.is_complete:
        return {"complete": False, "text": reading.text}
    return {"complete": True, "text": reading.text, "input": reading.input_tokens, "output": reading.output_tokens}


def dialect_of(path: str) -> Dialect:
    """Return the provider's protocol by the path of a request."""
    names = {"/v1/messages": "anthropic", "/v1/chat/completions": "openai-chat", "/v1/responses": "openai-responses"}
    return DIALECTS[names.get(path, "gemini")]


if __name__ == "__main__":
    config = uvicorn.Config(
        CountingSimulator(Path(sys.argv[2])), port=int(sys.argv[1]), log_level="warning", access_log=False
    )
    uvicorn.Server(config).run()
