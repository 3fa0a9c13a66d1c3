"""The console of a gateway with several workers, each of which holds the exchanges that it served."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.assertions import non_empty
from tests.support.gateway.process import PROCESS_DEADLINE, GatewayProcess, serve_with_workers, wait_for_process
from toolwire.gateway.console.exchange_feed import read_position, read_positions
from toolwire.gateway.keys.client_key import hash_secret

REQUEST = {"model": "m", "max_tokens": 9, "top_k": 4, "messages": [{"role": "user", "content": "Hi"}]}


class Page:
    """The exchanges that a page has, as in `exchange_store.js`."""

    def __init__(self, events: Iterator[str]) -> None:
        self._events = events
        self.rows: dict[str, int] = {}
        self.last_id = ""

    def read_until(self, count: int) -> list[str]:
        while len(self.rows) != count:
            name, _, value = next(self._events).partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "data":
                batch = json.loads(value)
                if batch["reset"]:
                    self.rows = {id: worker for id, worker in self.rows.items() if worker != batch["worker"]}
                self.rows |= {row["id"]: batch["worker"] for row in batch["rows"] if not row.get("is_open")}
        return list(self.rows)


@contextmanager
def open_page(gateway: GatewayProcess, last_id: str = "") -> Iterator[Page]:
    headers = {"last-event-id": last_id}
    with httpx.stream("GET", f"{gateway.root}/console/api/feed", headers=headers, timeout=PROCESS_DEADLINE) as response:
        yield Page(response.iter_lines())


def act(gateway: GatewayProcess, path: str, body: Any) -> Any:
    token = gateway.get("/console/api/session").json()["token"]
    url = f"{gateway.root}/console/api/{path}"
    return httpx.post(url, json=body, headers={"toolwire-console-token": token}, timeout=PROCESS_DEADLINE).json()


def post_to(gateway: GatewayProcess, worker: int) -> str:
    with gateway.only_worker(worker):
        return gateway.post(REQUEST).headers["toolwire-exchange"]


def test_page_shows_the_exchanges_of_all_workers(tmp_path: Path) -> None:
    with serve_with_workers(tmp_path, "--workers", "3") as gateway:
        wait_for_process(lambda: len(gateway.workers) == 3)
        assert act(gateway, "capture", {"seconds": 600})["capture"] > 500
        ids = [post_to(gateway, worker) for worker in gateway.workers]
        with open_page(gateway) as page:
            assert sorted(page.read_until(3)) == sorted(ids)
            assert sorted(page.rows.values()) == [0, 1, 2]
        for id in non_empty(ids):
            details = gateway.get(f"/console/api/exchanges/{id}").json()
            assert json.loads(details["bodies"]["request"])["top_k"] == 4  # the switch is for all workers
            bundle = gateway.get(f"/console/api/export/{id}")
            assert bundle.headers["content-disposition"] == f'attachment; filename="toolwire-{id}.zip"'
        assert gateway.get("/console/api/exchanges/ex_unknown").status_code == 404
        limits = {limit["name"]: limit for limit in gateway.get("/console/api/status").json()["limits"]}
        assert (limits["exchanges in memory"]["used"], limits["exchanges in memory"]["limit"]) == (3, 15_000)


def test_page_continues_with_each_worker_after_a_reconnect(tmp_path: Path) -> None:
    with serve_with_workers(tmp_path, "--workers", "2") as gateway:
        wait_for_process(lambda: len(gateway.workers) == 2)
        for worker in gateway.workers:
            post_to(gateway, worker)
        with open_page(gateway) as page:
            page.read_until(2)
        later = [post_to(gateway, worker) for worker in gateway.workers]
        with open_page(gateway, page.last_id) as page:
            assert sorted(page.read_until(2)) == sorted(later)


def test_replaced_worker_starts_with_an_empty_list(tmp_path: Path) -> None:
    with serve_with_workers(tmp_path, "--workers", "2") as gateway:
        wait_for_process(lambda: len(gateway.workers) == 2)
        first, second = gateway.workers
        with ExitStack() as stack:
            with gateway.only_worker(first):
                page = stack.enter_context(open_page(gateway))
            kept, lost = post_to(gateway, first), post_to(gateway, second)
            assert sorted(page.read_until(2)) == sorted([kept, lost])
            os.kill(second, signal.SIGKILL)
            assert page.read_until(1) == [kept]
            wait_for_process(lambda: len(gateway.workers) == 2)
            (replacement,) = set(gateway.workers) - {first}
            later = post_to(gateway, replacement)
            assert sorted(page.read_until(2)) == sorted([kept, later])


def test_exchanges_survive_a_reload_of_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "toolwire.toml"
    config.write_text("[console]\nexchanges = 3\n")
    with serve_with_workers(tmp_path, "--workers", "2") as gateway:
        wait_for_process(lambda: len(gateway.workers) == 2)
        first, second = gateway.workers
        ids = [post_to(gateway, worker) for worker in (first, first, first, second)]
        act(gateway, "capture", {"seconds": 600})
        config.write_text("[console]\nexchanges = 2\n")
        os.kill(gateway.process.pid, signal.SIGHUP)
        wait_for_process(lambda: "".join(gateway.log).count("configuration reloaded") == 2)
        with open_page(gateway) as page:
            assert sorted(page.read_until(3)) == sorted(ids[1:])
        assert gateway.get("/console/api/session").json()["capture"] > 500


@pytest.mark.parametrize("later", ["", f'[keys.boss]\nhash = "{hash_secret("another secret")}"\n'])
def test_session_ends_when_its_key_is_removed_or_changed(tmp_path: Path, later: str) -> None:
    """An open page of the key gets nothing more, and cannot connect again."""
    config, other = tmp_path / "toolwire.toml", f'[keys.other]\nhash = "{hash_secret("other secret")}"\n'
    config.write_text(f'{other}[keys.boss]\nhash = "{hash_secret("boss secret")}"\nadmin = true\n')
    with serve_with_workers(tmp_path, "--workers", "1") as gateway, httpx.Client(timeout=PROCESS_DEADLINE) as client:
        api = f"{gateway.root}/console/api"
        assert client.post(f"{api}/session", json={"key": "boss secret"}).status_code == 200
        with client.stream("GET", f"{api}/feed") as feed:
            assert feed.status_code == 200
            config.write_text(other + later)
            os.kill(gateway.process.pid, signal.SIGHUP)
            assert "".join(feed.iter_lines()).startswith("retry")  # the gateway ends it
        assert client.get(f"{api}/hosts").status_code == 401
        assert client.post(f"{api}/capture", json={"seconds": 9}).status_code == 401


def test_positions_are_read_by_worker() -> None:
    assert read_positions("0=ab:5,12=cd:7,x=e:1,=,99999=a:1") == {0: "ab:5", 12: "cd:7"}
    assert read_position("ab:5", "ab").number == 5
    for invalid in ("cd:5", "ab:x", "ab", "", "ab:" + "9" * 20):
        assert read_position(invalid, "ab").number == 0
