"""The data of the playground, the runs and the status."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import toolwire
from tests.gateway.console.chromium.console_setup import PIXEL, RUNS_FILE, record_runs
from tests.gateway.console.console_client import ConsoleClient, open_console, run_gateway, settled
from tests.support.assertions import non_empty
from tests.support.gateway.in_process import one_provider_config, question_request, run_async, run_gateway_with
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.codec.validation import Finding
from toolwire.gateway.console import console as console_module
from toolwire.gateway.console import playground
from toolwire.gateway.console.playground import find_refusals
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Origin

REQUEST = {"model": "m", "max_tokens": 9, "top_k": 4, "messages": [{"role": "user", "content": "Hi"}]}
BODIES = "[console]\nbodies = true\n"
KEYS = '[server]\nkeys = ["the-first-server-key", "the-second-server-key"]\n'


def question(protocol: str) -> str:
    return question_request(protocol)[1].decode()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_playground_translates_every_protocol_to_every_other(protocol: str) -> None:
    async def work() -> None:
        async with open_console() as console:
            reply = await console.act("translate", {"protocol": protocol, "body": question(protocol)})
            targets = {target["protocol"]: target for target in reply.json["targets"]}
            assert list(targets) == list(PROTOCOLS)
            for name, target in targets.items():
                expected = toolwire.translate(question(protocol), protocol, name)
                assert json.loads(target["body"]) == expected.value
                assert [loss["path"] for loss in target.get("losses", [])] == [loss.path for loss in expected.losses]

    run_async(work())


def test_playground_reports_losses_and_refusals() -> None:
    async def work() -> None:
        async with open_console() as console:
            body = json.dumps(REQUEST | {"messages": []})
            reply = (await console.act("translate", {"protocol": "anthropic", "body": body})).json
            assert [finding["path"] for finding in reply["findings"]] == ["/messages"]
            wanted = {"protocol": "anthropic", "body": json.dumps(REQUEST), "target": "openai-chat", "host": "groq"}
            (target,) = (await console.act("translate", wanted)).json["targets"]
            assert ("/top_k", "dropped") in [(loss["path"], loss["kind"]) for loss in target["losses"]]
            for wrong, problem in (
                ({"protocol": "nonsense", "body": "{}"}, "unknown protocol"),
                ({"protocol": "anthropic"}, "body"),
                ({"protocol": "anthropic", "body": "{}", "more": 1}, "more"),
            ):
                rejected = await console.act("translate", wrong)
                assert rejected.status == 400
                assert problem in rejected.json["error"]
            (broken, *_) = (await console.act("translate", {"protocol": "anthropic", "body": "{"})).json["targets"]
            assert "JSON" in broken["refused"]
            (unknown,) = (await console.act("translate", wanted | {"host": "nohost"})).json["targets"]
            assert "nohost" in unknown["refused"]

    run_async(work())


def test_playground_shows_what_a_provider_would_be_sent() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with open_console(upstream=script) as console:
            wanted = {"protocol": "anthropic", "body": json.dumps(REQUEST), "provider": "p0", "model": "other/m2"}
            (target,) = (await console.act("translate", wanted)).json["targets"]
            assert target["protocol"] == "openai-chat"
            assert "top_k" not in json.loads(target["body"])
            assert script.requests == []
            (unknown,) = (await console.act("translate", wanted | {"provider": "nowhere"})).json["targets"]
            assert "nowhere" in unknown["refused"]

    run_async(work())


def test_playground_manages_the_context_as_the_gateway_does() -> None:
    calls = [
        [
            {"role": "assistant", "content": [{"type": "tool_use", "id": f"t{number}", "name": "look", "input": {}}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": f"t{number}", "content": f"result {number}"}],
            },
        ]
        for number in range(3)
    ]
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "tool_uses", "value": 1},
        "keep": {"type": "tool_uses", "value": 1},
    }
    request = REQUEST | {
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "Look."}, *(message for pair in calls for message in pair)],
        "context_management": {"edits": [edit]},
    }

    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with open_console(BODIES, upstream=script) as console:
            wanted = {"protocol": "anthropic", "body": json.dumps(request), "provider": "p0", "model": "p0/m"}
            (target,) = (await console.act("translate", wanted)).json["targets"]
            (loss,) = [loss for loss in target["losses"] if loss["path"] == "/context_management"]
            assert loss["kind"] == "approximated"
            texts = [message.get("content") for message in json.loads(target["body"])["messages"]]
            assert "result 2" in texts
            assert "result 0" not in texts
            id = (await console.send("POST", "/v1/messages", request)).headers["toolwire-exchange"]
            (sent,) = script.bodies
            assert sent["messages"] == json.loads(target["body"])["messages"]
            details = (await console.get(f"exchanges/{id}")).json
            assert loss in details["losses"]

    run_async(work())


def test_refusals_are_found_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of the highest size takes long to check, which must not delay exchanges."""
    threads: list[threading.Thread] = []

    def find(*args: Any) -> list[Finding]:
        threads.append(threading.current_thread())
        return find_refusals(*args)

    for module in (console_module, playground):
        monkeypatch.setattr(module, "find_refusals", find)

    async def work() -> None:
        async with open_console() as console:
            body = {"protocol": "anthropic", "body": json.dumps(REQUEST)}
            for wanted, count in ((body | {"provider": "p0"}, 1), (body, len(PROTOCOLS) + 1)):
                threads.clear()
                assert "targets" in (await console.act("translate", wanted)).json
                assert len(threads) == count
                assert threading.current_thread() not in threads

    run_async(work())


def test_run_on_a_provider_is_an_exchange() -> None:
    async def work() -> None:
        script = ScriptedUpstream(CHAT_RESPONSE)
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            console = ConsoleClient(gateway)
            wanted = {"protocol": "anthropic", "body": json.dumps(REQUEST | {"stream": True}), "provider": "up"}
            result = (await console.act("run", wanted | {"model": "m9"})).json
            assert result["status"] == 200
            assert json.loads(result["response"])["content"][0]["text"] == "fine"
            (sent,) = script.bodies
            assert sent["model"] == "up/m9"  # the route of the test takes every name as it is
            await settled(console.buffer, 1)
            (exchange,) = console.buffer.after(0, 10)
            assert exchange.record.id == result["exchange"]
            token_needed = await console.send("POST", "/console/api/run", wanted)
            assert token_needed.status == 403
            assert len(script.requests) == 1

    run_async(work())


@pytest.mark.parametrize("target", PROTOCOLS)
def test_run_on_the_simulator_comes_back_in_the_protocol_of_the_request(target: str) -> None:
    async def work() -> None:
        async with open_console() as console:
            wanted = {"protocol": "anthropic", "body": question("anthropic"), "target": target}
            result = (await console.act("run", wanted)).json
            assert result["status"] == 200, result
            assert result["protocol"] == target
            assert json.loads(result["response"])["type"] == "message"

    run_async(work())


def test_simulated_host_refuses_as_the_real_one() -> None:
    async def work() -> None:
        async with open_console() as console:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "logprobs": True}
            wanted = {"protocol": "openai-chat", "body": json.dumps(body), "target": "openai-chat"}
            assert (await console.act("run", wanted | {"host": "groq"})).json["status"] == 200  # adapted to the host
            result = (await console.act("run", wanted | {"body": json.dumps({"model": "m"})})).json
            assert result["status"] == 400

    run_async(work())


async def read_runs(folder: Path) -> tuple[list[Any], dict[str, Any], bytes]:
    environment = {"XDG_STATE_HOME": str(folder)}
    async with run_gateway(one_provider_config(Origin("http", "127.0.0.1", 9)), environment=environment) as gateway:
        console = ConsoleClient(gateway)
        runs = (await console.get("runs")).json
        details = {run["id"]: (await console.get(f"runs/{run['id']}")).json for run in runs}
        pictures = [
            (id, number)
            for id, run in details.items()
            for turn in run["turns"]
            for call in turn["calls"]
            for number in call.get("pictures", [])
        ]
        data = b""
        for id, number in pictures:
            picture = await console.get(f"pictures/{id}/{number}")
            assert picture.headers["content-type"] == "image/png"
            data += picture.body
            assert (await console.get(f"pictures/{id}/{number + 1}")).status == 404
        assert (await console.get("runs/no-such-run")).status == 404
        return runs, details, data


def test_runs_show_turns_calls_pictures_and_waiting_approvals(tmp_path: Path) -> None:
    import base64

    finished, waiting = record_runs(tmp_path)
    holder: list[Any] = []

    async def work() -> None:
        holder.extend(await read_runs(tmp_path))

    run_async(work())
    runs, details, picture = holder
    assert {run["id"]: run["state"] for run in runs} == {finished: "finished", waiting: "waiting"}
    turns = details[finished]["turns"]
    assert [call["tool"] for turn in turns for call in turn["calls"]] == ["get_weather", "take_screenshot"]
    assert turns[0]["calls"][0]["result"] == "7 degrees and rain in Oslo"
    assert turns[-1]["text"].startswith("Take an umbrella")
    (call,) = details[waiting]["turns"][0]["calls"]
    assert (call["tool"], call["state"]) == ("send_mail", "waiting")
    assert picture == base64.b64decode(PIXEL)


def test_no_store_of_runs_is_created_by_looking(tmp_path: Path) -> None:
    async def work() -> None:
        runs, _, _ = await read_runs(tmp_path)
        assert runs == []

    run_async(work())
    assert not (tmp_path / RUNS_FILE).exists()


def test_status_shows_providers_and_limits() -> None:
    async def work() -> None:
        async with open_console() as console:
            await console.send("POST", "/v1/messages", REQUEST)
            await settled(console.buffer, 1)
            status = (await console.get("status")).json
            (provider,) = status["providers"]
            assert (provider["name"], provider["requests"], provider["input"], provider["output"]) == ("p0", 1, 3, 4)
            limits = {limit["name"]: limit["used"] for limit in status["limits"]}
            assert limits["exchanges in memory"] == 1
            assert "secret-of-p0" not in json.dumps(status)

    run_async(work())


def test_status_shows_open_breakers() -> None:
    async def work() -> None:
        broken = ScriptedUpstream(b"HTTP/1.1 500 Bad\r\ncontent-length: 0\r\n\r\n")
        config = "[limits]\nfailures = 1\nretries = 0\n"
        upstreams = broken, ScriptedUpstream(CHAT_RESPONSE)
        async with run_gateway_with(*upstreams, extra_config=config) as gateway:
            console = ConsoleClient(gateway)
            await console.send("POST", "/v1/messages", REQUEST)
            first, second = (await console.get("status")).json["providers"]
            assert first["open_breakers"] == ["m"]
            assert first["failovers"] == {"server": 1}
            assert "open_breakers" not in second

    run_async(work())


def test_doctor_reports_findings() -> None:
    async def work() -> None:
        async with open_console() as console:
            findings = (await console.act("diagnose", {})).json["findings"]
            assert {"server", "p0"} <= {finding["subject"] for finding in findings}

    run_async(work())


@pytest.mark.parametrize("path", ["runs", "runs/run_1", "pictures/run_1/0"])
def test_runs_are_for_admins(path: str) -> None:
    async def work() -> None:
        async with open_console(KEYS) as console:
            reply = await console.send("POST", "/console/api/session", {"key": "the-first-server-key"})
            cookie = reply.headers["set-cookie"].partition(";")[0]
            signed_in = ConsoleClient(console.gateway, {"cookie": cookie})
            assert (await signed_in.get(path)).status == 403
            assert "providers" not in (await signed_in.get("status")).json
            assert (await signed_in.act("diagnose", {})).status == 403

    run_async(work())


def test_hosts_are_listed_by_protocol() -> None:
    async def work() -> None:
        async with open_console() as console:
            hosts = (await console.get("hosts")).json["hosts"]
            for host in non_empty(hosts["openai-chat"]):
                assert host["title"]
            assert "groq" in [host["name"] for host in hosts["openai-chat"]]

    run_async(work())
