"""A provider and an agent whose every text is a payload."""

import json
from pathlib import Path
from typing import Any

import toolwire
from tests.gateway.console.chromium.console_setup import RUNS_FILE, Postponing
from toolwire.canonical.content import ToolCall
from toolwire.testing import ScriptedModel, respond

SVG = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIG9ubG9hZD0iYWxlcnQoMSkiLz4="  # with an onload attribute


class HostileProvider:
    """A Chat server that repeats a payload in every field of its responses, streams, errors and models."""

    def __init__(self, payload: str) -> None:
        self._payload = payload

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        request = json.loads(body or b"{}")
        if scope["path"].endswith("/models"):
            await _respond(send, 200, json.dumps({"data": [{"id": self._payload}], "object": self._payload}))
        elif "fail" in request["model"]:
            error = {"message": self._payload, "type": self._payload, "code": self._payload, "param": self._payload}
            await _respond(send, 400, json.dumps({"error": error, self._payload: self._payload}))
        elif request.get("stream"):
            await _respond(send, 200, self._stream(), "text/event-stream")
        else:
            choice = {"index": 0, "message": self._message(), "finish_reason": self._payload}
            await _respond(send, 200, json.dumps(self._about("object") | {"choices": [choice]}))

    def _about(self, object_name: str) -> dict[str, Any]:
        names = ("id", object_name, "model", "system_fingerprint", "service_tier", "type", self._payload)
        return dict.fromkeys(names, self._payload) | {"created": 1, "usage": {"prompt_tokens": 3, self._payload: 4}}

    def _message(self) -> dict[str, Any]:
        function = {"name": self._payload, "arguments": json.dumps({self._payload: self._payload})}
        call = {"index": 0, "id": self._payload, "type": "function", "function": function}
        texts = {"content": self._payload, "reasoning_content": self._payload, self._payload: self._payload}
        return {"role": "assistant", "tool_calls": [call], **texts}

    def _stream(self) -> str:
        chunks: list[Any] = [
            self._about("object") | {"choices": [{"index": 0, "delta": self._message(), "finish_reason": None}]},
            self._about("object") | {"choices": [{"index": 0, "delta": {}, "finish_reason": self._payload}]},
        ]
        return (
            "".join(f"event: {self._payload}\ndata: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        )


async def _respond(send: Any, status: int, body: str, media_type: str = "application/json") -> None:
    headers = [(b"content-type", media_type.encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})


def record_hostile_runs(folder: Path, payload: str) -> list[str]:
    """Record a finished run and one that waits, whose model and tools repeat a payload; return their ids."""

    @toolwire.tool
    def read_page(text: str) -> toolwire.Media:
        """Read a page."""
        return toolwire.Media(kind="image", source=toolwire.Inline(data=SVG), media_type="image/svg+xml")

    @toolwire.tool
    def fail(text: str) -> str:
        """Fail."""
        raise toolwire.ToolError(payload)

    @toolwire.tool
    def send_mail(text: str) -> str:
        """Send an e-mail."""
        return text

    arguments = json.dumps({"text": payload})
    calls = [ToolCall(id=None, name=name, arguments=arguments) for name in ("read_page", "fail", payload)]
    finished = ScriptedModel(respond(payload, *calls), payload, name=payload)
    waiting = ScriptedModel(respond(ToolCall(id=payload, name="send_mail", arguments=arguments)), name=payload)
    path = folder / RUNS_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    policy = toolwire.Policy(allow=["read_page", "fail"], ask=["send_mail"])
    tools: list[Any] = [read_page, fail, send_mail]
    return [
        toolwire.Agent(model, tools=tools, policy=policy, approver=Postponing(), journal=path).run(payload).id
        for model in (finished, waiting)
    ]
