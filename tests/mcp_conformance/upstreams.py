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
        seen = [(f"toolwire ask on {one}", _asked(one, config, folder)) for one in PROTOCOLS]
        with _serving(config, folder) as root:
            seen += [
                (
                    f"{'a stream' if stream else 'a request'} of {client} on {one}",
                    _offered(root, client, one, folder, stream=stream),
                )
                for one in PROTOCOLS
                for client in PROTOCOLS
                for stream in (False, True)
            ]
    return seen


def _upstreams(url: str) -> Iterator[str]:
    for one in PROTOCOLS:
        yield f'[providers.{one}]\nprotocol = "{one}"\nbase_url = "{url}"\napi_key = "any"\n'
    for one in PROTOCOLS:
        for calls in ("hidden", "shown"):
            yield f'[[routes]]\nmatch = "{calls}-{one}"\nprovider = "{one}"\nmodel = "any"'
            yield f'tools = ["everything", "files"]\ntool_calls = "{calls}"\n'


def _prompt(folder: Path) -> str:
    return f'everything__get-sum {{"a": 20, "b": 22}} and files__read_text_file {{"path": "{folder}/note.txt"}}'


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(folder / "state")}


def _asked(protocol: str, config: Path, folder: Path) -> str:
    arguments = ["ask", _prompt(folder), "--model", f"{protocol}/any", "--config", str(config)]
    done = subprocess.run(
        [*_TOOLWIRE, *arguments, "--workspace", str(folder)],
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    right = "get-sum returned: The sum of 20 and 22 is 42" in done.stdout and "eins zwei drei" in done.stdout
    return "" if right else f"{done.stdout} {done.stderr}"


@contextmanager
def _serving(config: Path, folder: Path) -> Iterator[str]:
    command = [*_TOOLWIRE, "serve", "--config", str(config), "--port", "0", "--attached"]
    said = folder / "serve.txt"
    with said.open("w") as log:
        process = subprocess.Popen(command, env=_environment(folder), stdin=subprocess.PIPE, stderr=log)
    try:
        while (found := _ADDRESS.search(said.read_text())) is None:
            if process.poll() is not None:
                raise SystemExit(said.read_text())
            time.sleep(0.05)
        yield found[1]
    finally:
        process.communicate(timeout=60)


def _offered(root: str, client: str, upstream: str, folder: Path, *, stream: bool) -> str:
    """Check a client without MCP: it gets one response, and sees calls as the route configures."""
    for calls in ("hidden", "shown"):
        path, body = question_request(client, stream=stream, model=f"{calls}-{upstream}", text=_prompt(folder))
        got = http_client.post(root + path, content=body, headers={"content-type": "application/json"})
        if got.status_code != 200:
            return got.text
        response = _read(client, got.content, stream=stream)
        parts = [part for message in response.candidates[0].messages for part in message.parts]
        text = "".join(part.text for part in parts if isinstance(part, Text))
        if "The sum of 20 and 22 is 42" not in text or "eins zwei drei" not in text:
            return f"it said {text!r}"
        if any(isinstance(part, ToolCall) and part.executor == "client" for part in parts):
            return "the client is to run a tool that it does not have"
        if (_SHOWN.get(client, b"nothing else") in got.content) != (calls == "shown" and client in _SHOWN):
            return f"what was called is not {calls}"
    return ""


def _read(client: str, data: bytes, *, stream: bool) -> Response:
    return fold(decode_events(client, data)) if stream else PROTOCOLS[client].decode_response(data, ResponseContext())
