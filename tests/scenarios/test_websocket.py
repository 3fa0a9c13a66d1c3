"""Codex's websocket, and that of the openai SDK, in front of every upstream."""

from pathlib import Path
from typing import Any

import openai
import pytest

from tests.patience import wait_until
from tests.scenarios.socket import FUNCTION, opened, outputs_for, text_of, user
from tests.scenarios.test_sdk_matrix import PROVING
from tests.scenarios.test_sdk_state import KEYS, Restarting
from tests.scenarios.watching import Place, gateway_in_front_of, model_of, proofs_in
from tests.upstream.clients import CLIENTS, KEY
from toolwire.journal.reading import response_of
from toolwire.journal.store import found_at
from toolwire.upstream.simulator.app import Simulator


@pytest.mark.parametrize("upstream", CLIENTS)
def test_three_turns_as_codex_takes_them(place: Place, upstream: str) -> None:
    with opened(place, upstream) as codex:
        developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}
        warm = codex.ask([developer], generate=False)
        assert warm["output"] == []
        assert place.upstream.seen == []
        first = codex.ask("What is the weather in Oslo?", warm["id"])
        second = codex.ask(outputs_for(first, "snow"), first["id"])
        assert "snow" in text_of(second)
        third = codex.ask("And the weather in Rome?", second["id"])
        fourth = codex.ask(outputs_for(third, "sun"), third["id"])
        assert "sun" in text_of(fourth)
    assert [seen.status for seen in place.upstream.seen] == [200] * 4
    last = place.upstream.seen[-1]
    assert [call.id for call in last.calls(upstream)] == [result.call_id for result in last.results(upstream)]
    assert len(last.calls(upstream)) == 2
    assert last.asked.count(b"Be brief.") == 1
    if upstream in PROVING:
        assert len(proofs_in(last.asked)) >= 2


@pytest.mark.parametrize("upstream", CLIENTS)
def test_the_same_over_sse(tmp_path: Path, upstream: str) -> None:
    """What Codex does where there is no websocket: all of it, each time; a restart is nothing to it."""
    restarting = Restarting(tmp_path / "state.db")
    history: list[Any] = []
    for question, result in (("What is the weather in Oslo?", "snow"), ("And the weather in Rome?", "sun")):
        place = restarting.start()
        history.append(user(question))
        called = _streamed(place, upstream, history)
        history += [*called["output"], *outputs_for(called, result)]
        told = _streamed(place, upstream, history)
        assert result in text_of(told)
        history += told["output"]
    last = place.upstream.seen[-1]
    assert [call.id for call in last.calls(upstream)] == [result.call_id for result in last.results(upstream)]
    assert len(last.calls(upstream)) == 2
    if upstream in PROVING:
        assert len(proofs_in(last.asked)) >= 2
    restarting.stop()


def _streamed(place: Place, upstream: str, history: list[Any]) -> dict[str, Any]:
    with (
        openai.OpenAI(base_url=f"{place.base_url}/v1", api_key=KEYS[0], max_retries=0) as client,
        client.responses.stream(
            model=model_of(upstream),
            input=history,
            tools=[FUNCTION],
            store=False,
            reasoning={"effort": "high", "summary": "auto"},
            include=["reasoning.encrypted_content"],
        ) as stream,
    ):
        told = stream.get_final_response().model_dump(exclude_none=True)
    items = [{name: value for name, value in item.items() if name != "parsed_arguments"} for item in told["output"]]
    return told | {"output": items}


@pytest.mark.parametrize("upstream", CLIENTS)
def test_a_restart_is_a_reconnection(tmp_path: Path, upstream: str) -> None:
    """What Codex does when the connection is gone: another one, on which it says all of it again."""
    restarting = Restarting(tmp_path / "state.db")
    question = user("What is the weather in Oslo?")
    with opened(restarting.start(), upstream, KEYS[0]) as codex:
        first = codex.ask([question])
        results = outputs_for(first, "snow")
        second = codex.ask(results, first["id"])
        assert "snow" in text_of(second)
    place = restarting.start()
    with opened(place, upstream, KEYS[0]) as codex:
        following = user("And the weather in Rome?")
        gone = codex.refused([following], second["id"])
        assert (gone["status"], gone["error"]["code"]) == (400, "previous_response_not_found")
        third = codex.ask([question, *first["output"], *results, *second["output"], following])
        fourth = codex.ask(outputs_for(third, "sun"), third["id"])
        assert "sun" in text_of(fourth)
    last = place.upstream.seen[-1]
    assert [call.id for call in last.calls(upstream)] == [result.call_id for result in last.results(upstream)]
    assert len(last.calls(upstream)) == 2
    if upstream in PROVING:
        assert len(proofs_in(last.asked)) >= 2
    restarting.stop()


@pytest.mark.filterwarnings(r"ignore:connect\(\) must be used:DeprecationWarning")  # the SDK's own affair
@pytest.mark.parametrize("upstream", CLIENTS)
def test_the_websocket_of_the_sdk(place: Place, upstream: str) -> None:
    text = ""
    with (
        openai.OpenAI(base_url=f"{place.base_url}/v1", api_key=KEY, max_retries=0) as client,
        client.responses.connect() as connection,
    ):
        connection.response.create(model=model_of(upstream), input="Hi", store=False)
        for event in connection:
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type == "response.completed":
                assert event.response.output_text == text
                break
    assert "Hi" in text


def test_the_events_are_those_of_the_stream(place: Place) -> None:
    with opened(place, "anthropic") as codex:
        codex.send("What is the weather in Oslo?")
        events = codex.events()
    with openai.OpenAI(base_url=f"{place.base_url}/v1", api_key=KEY, max_retries=0) as client:
        responses: Any = client.responses
        streamed = responses.create(
            model=model_of("anthropic"),
            input=[user("What is the weather in Oslo?")],
            tools=[FUNCTION],
            store=False,
            reasoning={"effort": "high", "summary": "auto"},
            include=["reasoning.encrypted_content"],
            stream=True,
        )
        assert [event["type"] for event in events] == [event.type for event in streamed]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_what_goes_over_it_is_recorded(tmp_path: Path) -> None:
    more = f'[journal]\nenabled = true\nbodies = true\npath = "{tmp_path}/journal.db"\n'
    with gateway_in_front_of(Simulator(), more) as place, opened(place, "gemini") as codex:
        warm = codex.ask([user("Be brief.")], generate=False)
        first = codex.ask("What is the weather in Oslo?", warm["id"])
        codex.refused("And?", "resp_of_nobody")
        store = found_at(tmp_path / "journal.db")
        wait_until(lambda: len(store.latest(10)) == 2)
        found = store.latest(10)
        store.close()
    (done, refused) = [record for _, record in found]
    assert (done.client, done.provider, done.protocol, done.status) == ("openai-responses", "gemini", "gemini", 200)
    assert (done.stops, done.streamed) == (["tool_use"], True)
    assert done.usage["output_tokens"] > 0
    assert done.bodies is not None
    assert b"Be brief." in done.bodies.translated
    answered = response_of(done)
    assert answered is not None
    assert answered.id == first["id"]
    assert (refused.status, refused.why) == (400, "Previous response with id 'resp_of_nobody' not found.")
