"""Chat servers on loopback that reject what a simulated host rejects."""

import asyncio
import json

from tests.support.bodies.agents import CALL_ID, Body
from tests.support.bodies.minimal import chat_events
from tests.support.servers.http_responses import http_response
from tests.support.servers.upstream import read_http_request
from toolwire.codec.hosts.registry import profile_named
from toolwire.upstream.simulator.hosts.host import SimulatedHost
from toolwire.upstream.simulator.hosts.refusals import HostRefusal

_PATCH = json.dumps({"input": "*** Begin Patch"})


class HostUpstream:
    """An upstream that responds with a call of `apply_patch`, or with the error of the simulated host of that name.

    Without a name, it accepts every request.
    """

    def __init__(self, name: str | None = None) -> None:
        self.bodies: list[Body] = []
        self.refusals: list[HostRefusal] = []
        self._host = None if name is None else SimulatedHost(profile_named(name))

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            data = (await read_http_request(reader)).partition(b"\r\n\r\n")[2]
            self.bodies.append(json.loads(data))
            writer.write(self._respond(data))
            await writer.drain()

    def _respond(self, data: bytes) -> bytes:
        try:
            if self._host is not None:
                self._host.check_request(data)
        except HostRefusal as refusal:
            self.refusals.append(refusal)
            return http_response(f"{refusal.status} Refused", refusal.body)
        return _answer()


def _answer() -> bytes:
    call = {"index": 0, "id": CALL_ID, "type": "function", "function": {"name": "apply_patch", "arguments": _PATCH}}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    events = chat_events(
        chunk
        | {"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}, "finish_reason": None}]},
        chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": usage},
    )
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(events)}\r\n\r\n"
    return head.encode() + events
