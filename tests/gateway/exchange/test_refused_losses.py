"""Refused exchanges: header, log, metrics, journal and loss report show what the request would have lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway.in_process import journal_config, read_journal, run_async, run_gateway_with
from tests.support.servers.http_responses import CHAT_RESPONSE, http_response, openai_error_body
from tests.support.servers.upstream import ScriptedUpstream

REQUEST: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}],
}
WARNING = {"top_k": 5}
ERROR = {"tools": [{"type": "advisor_20260301", "name": "advisor"}]}
REFUSAL = http_response("400 Bad Request", openai_error_body("no such setting", "invalid_request_error"))


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("refuser", ["gateway", "upstream"])
def test_refused_exchange_shows_its_losses(refuser: str, stream: bool, tmp_path: Path) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(REFUSAL)
        route = "strict = true" if refuser == "gateway" else ""
        async with run_gateway_with(upstream, extra_config=journal_config(tmp_path), route_options=route) as gateway:
            body = json.dumps(REQUEST | WARNING | ERROR | {"stream": stream}).encode()
            response = await gateway.post("/v1/messages", body)
            await response.read(100_000)
            id = response.headers["toolwire-exchange"]
            report = json.loads((await gateway.get(f"/toolwire/exchanges/{id}/losses"))[1])["losses"]
            metrics = (await gateway.get("/metrics"))[1].decode()
        assert response.status == 400
        counted = [("warning", "/top_k"), ("error", "/tools/0")]
        header = json.loads(response.headers["toolwire-losses"])["losses"]
        assert sorted((loss["severity"], loss["path"]) for loss in header) == sorted(counted)
        assert {loss["severity"] for loss in report} == {"error", "warning", "info"}
        assert 'toolwire_losses_total{severity="error"} 1' in metrics
        assert 'toolwire_losses_total{severity="warning"} 1' in metrics
        (record,) = read_journal(tmp_path)
        assert [loss.path for loss in record.losses] == [loss["path"] for loss in report]

    run_async(work())


@pytest.mark.parametrize(
    ("route", "header", "fields", "status"),
    [
        ("", None, WARNING | ERROR, 200),
        ("strict = true", None, {}, 200),
        ("strict = true", None, WARNING, 400),
        ('strict = "error"', None, WARNING, 200),
        ('strict = "error"', None, ERROR, 400),
        ("", "refuse", WARNING, 400),
        ("", "error", WARNING, 200),
        ("", "error", ERROR, 400),
        ('strict = "error"', "refuse", WARNING, 400),
        ("strict = true", "error", WARNING, 400),
        ("", "all", {}, 400),
    ],
)
def test_stricter_setting_of_route_and_header_decides(
    route: str, header: str | None, fields: dict[str, Any], status: int
) -> None:
    async def work() -> None:
        upstream = ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(upstream, route_options=route) as gateway:
            headers = {} if header is None else {"toolwire_strict": header}
            response = await gateway.post("/v1/messages", json.dumps(REQUEST | fields).encode(), **headers)
            data = await response.read(100_000)
        assert response.status == status, data

    run_async(work())
