"""A gateway killed as soon as the client has its response: everything acknowledged is still there."""

import contextlib
import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.gateway.process import serve_process
from tests.support.runtime.fork_server import ForkedProcess
from toolwire.journal import writer
from toolwire.journal.store import open_existing_store

PATIENCE = 60
BRIEFLY = 1.0  # for events that must not happen: on a slow machine the test sees less but never fails
SLOW = f"import runpy; runpy.run_path({str(Path(__file__).with_name('slow_disk.py'))!r}, run_name='__main__')"

Asked = Callable[[httpx.Client], str]


def buffered(client: httpx.Client) -> str:
    id: str = client.post("/v1/responses", json={"model": "m", "input": "hello", "store": True}).json()["id"]
    return f"/v1/responses/{id}"


def streamed(client: httpx.Client) -> str:
    body = {"model": "m", "input": "hello", "stream": True}
    with client.stream("POST", "/v1/responses", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: ") and "response.completed" in line:
                return f"/v1/responses/{json.loads(line[6:])['response']['id']}"
    raise AssertionError("the stream has no end")


def interaction(client: httpx.Client) -> str:
    id: str = client.post("/v1beta/interactions", json={"model": "m", "input": "hello"}).json()["id"]
    return f"/v1beta/interactions/{id}"


def background(client: httpx.Client) -> str:
    id: str = client.post("/v1/responses", json={"model": "m", "input": "hello", "background": True}).json()["id"]
    return f"/v1/responses/{id}"


def background_stream(client: httpx.Client) -> str:
    body = {"model": "m", "input": "hello", "background": True, "stream": True}
    with client.stream("POST", "/v1/responses", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: ") and "response.completed" in line:
                return f"/v1/responses/{json.loads(line[6:])['response']['id']}?done"
    raise AssertionError("the stream has no end")


def conversation(client: httpx.Client) -> str:
    return f"/v1/conversations/{client.post('/v1/conversations', json={}).json()['id']}"


def item(client: httpx.Client) -> str:
    object_path = conversation(client)
    added = {"items": [{"type": "message", "role": "user", "content": "hello"}]}
    return f"{object_path}/items/{client.post(f'{object_path}/items', json=added).json()['data'][0]['id']}"


ALL = [buffered, streamed, interaction, background, background_stream, conversation, item]


def ask_and_kill(root: str, ask: Asked, killed: ForkedProcess) -> str:
    """Return the path of the stored object; the gateway is killed before anything else happens."""
    with httpx.Client(base_url=root, timeout=PATIENCE) as client:
        object_path = ask(client)
        os.kill(killed.pid, signal.SIGKILL)
    killed.wait(PATIENCE)
    return object_path


def is_there(home: Path, object_path: str) -> bool:
    """Return whether a restarted gateway finds the object."""
    with serve_process(home) as (_, root):
        return httpx.get(root + object_path, timeout=PATIENCE).status_code == 200


def is_stored(home: Path, object_path: str) -> bool:
    """Return whether the object is in the file."""
    id, _, done = object_path.rpartition("/")[2].partition("?")
    with contextlib.closing(sqlite3.connect(home / "toolwire" / "state.db")) as connection:
        query = "SELECT body FROM kept WHERE id = :id OR id LIKE '%/' || :id ORDER BY serial"
        rows = connection.execute(query, {"id": id}).fetchall()
    return bool(rows) and (not done or json.loads(rows[0][0])["response"]["status"] == "completed")


@pytest.mark.parametrize("ask", [streamed, background], ids=lambda ask: ask.__name__)
def test_acknowledged_state_survives_a_kill(ask: Asked, tmp_path: Path) -> None:
    """The gateway process is killed at the last byte of the response."""
    with serve_process(tmp_path) as (process, root):
        object_path = ask_and_kill(root, ask, process)
    assert is_there(tmp_path, object_path)


@pytest.mark.parametrize("ask", ALL, ids=lambda ask: ask.__name__)
def test_response_is_stored_before_it_is_acknowledged(ask: Asked, tmp_path: Path) -> None:
    """The same with a slow disk, which leaves time for a kill in between."""
    with serve_process(tmp_path, program=SLOW) as (process, root):
        stored_paths: list[str] = []
        client = threading.Thread(target=lambda: stored_paths.append(ask_and_kill(root, ask, process)), daemon=True)
        client.start()
        wait_until((tmp_path / "writing").exists)
        client.join(BRIEFLY)
        (tmp_path / "go").touch()
        client.join(PATIENCE)
        assert stored_paths
    assert is_stored(tmp_path, stored_paths[0])


def test_record_is_journaled_soon_after_the_response(tmp_path: Path) -> None:
    """The journal is written within the documented delay, and records survive a kill."""
    assert writer.BATCH_INTERVAL <= 0.5  # docs/guides/journal.md, docs/decisions/0019-leases-and-durable-state.md
    path = tmp_path / "journal.db"
    (tmp_path / "toolwire.toml").write_text(f'[journal]\nenabled = true\npath = "{path}"\n', encoding="utf-8")
    with serve_process(tmp_path) as (process, root):
        httpx.post(f"{root}/v1/responses", json={"model": "m", "input": "hello"}, timeout=PATIENCE)
        wait_until(lambda: bool(records(path)))
        process.kill()
        process.wait(PATIENCE)
    assert [record.path for record in records(path)] == ["/v1/responses"]


def records(path: Path) -> list[Any]:
    with contextlib.closing(open_existing_store(path)) as journal:
        return [record for _, record in journal.latest(10)]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
