"""Third-party servers on every upstream, with `toolwire ask` and through `toolwire serve`."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from tests.mcp_conformance.third_party_servers import EVERYTHING, FILES, settings
from tests.support.codecs import decode_events
from tests.support.gateway.in_process import question_request
from tests.support.servers.asgi import http_client, serve_app
from toolwire.canonical.content import Text, ToolCall
from toolwire.canonical.fold import fold
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.mcp.config import as_toml
from toolwire.upstream.simulator.app import Simulator

Seen = list[tuple[str, str]]
_TOOLWIRE = [sys.executable, "-c", "import sys, toolwire.cli; toolwire.cli.main(sys.argv[1:])"]
_ADDRESS = re.compile(r"toolwire listens on (http://\S+)")
_SHOWN = {"anthropic": b"mcp_tool_use", "openai-responses": b"mcp_call"}
_ALLOWED = '[policy]\nallow = ["everything__get-*", "files__read_*"]\n'


def on_every_upstream(cache: Path, path: str, folder: Path) -> Seen:
    """Return each mode by name with its failure, or an empty text."""
    (folder / "note.txt").write_text("eins zwei drei", encoding="utf-8")
    everything = replace(settings(cache, path, EVERYTHING, folder), tools=("echo", "get-*"))
    servers = {"everything": everything, "files": settings(cache, path, FILES, folder)}
    with serve_app(Simulator()) as url:
        config = folder / "upstreams.toml"
        config.write_text("\n".join([as_toml(servers), _ALLOWED, *_upstreams(url)]), encoding="utf-8")
        results = [(f"toolwire ask on {protocol}", _run_ask(protocol, config, folder)) for protocol in PROTOCOLS]
        with _serving(config, folder) as root:
            results += [
                (
                    f"{'a stream' if stream else 'a request'} of {client} on {protocol}",
                    _offered(root, client, protocol, folder, stream=stream),
                )
                for protocol in PROTOCOLS
                for client in PROTOCOLS
                for stream in (False, True)
            ]
    return results


def _upstreams(url: str) -> Iterator[str]:
    for protocol in PROTOCOLS:
        yield f'[providers.{protocol}]\nprotocol = "{protocol}"\nbase_url = "{url}"\napi_key = "any"\n'
    for protocol in PROTOCOLS:
        for calls in ("hidden", "shown"):
            yield f'[[routes]]\nmatch = "{calls}-{protocol}"\nprovider = "{protocol}"\nmodel = "any"'
            yield f'tools = ["everything", "files"]\ntool_calls = "{calls}"\n'


def _prompt(folder: Path) -> str:
    return f'everything__get-sum {{"a": 20, "b": 22}} and files__read_text_file {{"path": "{folder}/note.txt"}}'


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(folder / "state")}


def _run_ask(protocol: str, config: Path, folder: Path) -> str:
    arguments = ["ask", _prompt(folder), "--model", f"{protocol}/any", "--config", str(config)]
    completed = subprocess.run(
        [*_TOOLWIRE, *arguments, "--workspace", str(folder)],
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    succeeded = (
        "get-sum returned: The sum of 20 and 22 is 42" in completed.stdout and "eins zwei drei" in completed.stdout
    )
    return "" if succeeded else f"{completed.stdout} {completed.stderr}"


@contextmanager
def _serving(config: Path, folder: Path) -> Iterator[str]:
    command = [*_TOOLWIRE, "serve", "--config", str(config), "--port", "0", "--attached"]
    log_file = folder / "serve.txt"
    with log_file.open("w") as log:
        process = subprocess.Popen(command, env=_environment(folder), stdin=subprocess.PIPE, stderr=log)
    try:
        while (match := _ADDRESS.search(log_file.read_text())) is None:
            if process.poll() is not None:
                raise SystemExit(log_file.read_text())
            time.sleep(0.05)
        yield match[1]
    finally:
        process.communicate(timeout=60)


def _offered(root: str, client: str, upstream: str, folder: Path, *, stream: bool) -> str:
    """Check a client without MCP: it gets one response, and sees calls as the route configures."""
    for calls in ("hidden", "shown"):
        path, body = question_request(client, stream=stream, model=f"{calls}-{upstream}", text=_prompt(folder))
        reply = http_client.post(root + path, content=body, headers={"content-type": "application/json"})
        if reply.status_code != 200:
            return reply.text
        response = _decode_response(client, reply.content, stream=stream)
        parts = [part for message in response.candidates[0].messages for part in message.parts]
        text = "".join(part.text for part in parts if isinstance(part, Text))
        if "The sum of 20 and 22 is 42" not in text or "eins zwei drei" not in text:
            return f"it said {text!r}"
        if any(isinstance(part, ToolCall) and part.executor == "client" for part in parts):
            return "the client is to run a tool that it does not have"
        if (_SHOWN.get(client, b"nothing else") in reply.content) != (calls == "shown" and client in _SHOWN):
            return f"what was called is not {calls}"
    return ""


def _decode_response(client: str, data: bytes, *, stream: bool) -> Response:
    return fold(decode_events(client, data)) if stream else PROTOCOLS[client].decode_response(data, ResponseContext())
