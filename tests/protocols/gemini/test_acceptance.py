"""The acceptance list, as far as it speaks of Gemini: each test names the failure that was reported elsewhere."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.bodies import (
    anthropic_call,
    anthropic_request,
    anthropic_result,
    anthropic_turn,
    chat_call,
    chat_request,
    chat_result,
    chat_turn,
    responses_call,
    responses_output,
    responses_turn,
    turn,
)

OTHERS = ("anthropic", "openai-chat", "openai-responses")
SIGNATURE = "EpwICpkIAXLI2nxlU6gsWZaZHRYkX1orzuM8vSUFwaAt1JRxEC2hJzPAcAu3PWaKz7X="
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def to_gemini(body: Any, source: str, **options: Any) -> Any:
    return tw.translate(body, source, "gemini", **options).value


def contents(body: Any) -> list[Any]:
    found: list[Any] = body["contents"]
    return found


def inner(body: Any, name: str) -> list[Any]:
    return [part[name] for content in contents(body) for part in content["parts"] if name in part]


def gemini_answer(*parts: Any, reason: str = "STOP") -> Any:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": reason, "index": 0}
    return {"candidates": [candidate], "modelVersion": "gemini-3-flash", "responseId": "r1"}


def gemini_call(city: str, **fields: Any) -> Any:
    return {"functionCall": {"name": "get_weather", "args": {"city": city}, **fields}}


def events(*bodies: Any) -> bytes:
    return b"".join(f"data: {json.dumps(body)}\n\n".encode() for body in bodies)


def chunk(*parts: Any, reason: str | None = None) -> Any:
    body = gemini_answer(*parts)
    if reason is None:
        del body["candidates"][0]["finishReason"]
    return body


@pytest.mark.parametrize("source", OTHERS)
def test_id_7_a_result_is_never_nameless(source: str) -> None:
    responses = inner(to_gemini(turn(source, "c1"), source), "functionResponse")
    assert [response["name"] for response in responses] == ["get_weather"]


def test_id_7_a_result_without_its_call_is_told_as_text() -> None:
    body = anthropic_request()
    body["messages"] = [{"role": "user", "content": [anthropic_result("c9", "18C")]}]
    made = to_gemini(body, "anthropic")
    assert inner(made, "functionResponse") == []
    assert "18C" in json.dumps(made)


def test_id_8_results_are_named_after_the_calls_that_they_answer() -> None:
    calls = [chat_call("c1", "first"), chat_call("c2", "second")]
    made = to_gemini(chat_turn(calls, [chat_result("c2", "two"), chat_result("c1", "one")]), "openai-chat")
    told = [(one["name"], one["response"]["output"]) for one in inner(made, "functionResponse")]
    assert told == [("first", "one"), ("second", "two")]


def test_id_9_an_issued_id_is_on_call_and_result() -> None:
    made = to_gemini(chat_turn([chat_call("call_7")], [chat_result("call_7")]), "openai-chat")
    assert inner(made, "functionCall")[0]["id"] == "call_7"
    assert inner(made, "functionResponse")[0]["id"] == "call_7"


@pytest.mark.parametrize("target", OTHERS)
def test_id_10_calls_without_ids_get_the_same_ones_each_time_and_none_goes_back(target: str) -> None:
    history = [
        {"role": "user", "parts": [{"text": "Go."}]},
        {"role": "model", "parts": [gemini_call("Paris"), gemini_call("Paris")]},
        {"role": "user", "parts": [{"functionResponse": {"name": "get_weather", "response": {"output": "18C"}}}] * 2},
    ]
    once = tw.translate({"contents": history}, "gemini", target, model="m").to_bytes()
    assert tw.translate({"contents": history}, "gemini", target, model="m").to_bytes() == once
    ids = {found for found in once.decode().split('"') if found.startswith("call_tw")}
    assert len(ids) == 2
    back = to_gemini(json.loads(once), target)
    assert all("id" not in call for call in inner(back, "functionCall"))
    assert all("id" not in result for result in inner(back, "functionResponse"))


@pytest.mark.parametrize("source", OTHERS)
def test_or_7_all_results_of_a_turn_are_in_one_content(source: str) -> None:
    made = to_gemini(turn(source, "c1", "c2", "c3"), source)
    with_results = [one for one in contents(made) if "functionResponse" in one["parts"][0]]
    assert [len(one["parts"]) for one in with_results] == [3]
    assert with_results[0]["role"] == "user"


def test_or_8_nothing_stands_beside_the_results() -> None:
    body = anthropic_turn([anthropic_call("c1")], [anthropic_result("c1"), {"type": "text", "text": "And now?"}])
    after = contents(to_gemini(body, "anthropic"))[2:]
    assert [list(part) for part in after[0]["parts"]] == [["functionResponse"]]
    assert after[1] == {"role": "user", "parts": [{"text": "And now?"}]}


def test_or_9_calls_come_last_in_the_turn_of_the_model() -> None:
    body = anthropic_turn([anthropic_call("c1"), {"type": "text", "text": "I called."}], [anthropic_result("c1")])
    parts = contents(to_gemini(body, "anthropic"))[1]["parts"]
    assert [next(iter(part)) for part in parts] == ["text", "functionCall"]


def picture(data: str = PICTURE) -> Any:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def test_im_1_an_image_in_a_result_is_in_the_result() -> None:
    result = anthropic_result("c1", [{"type": "text", "text": "here"}, picture()])
    made = to_gemini(anthropic_turn([anthropic_call("c1")], [result]), "anthropic", model="gemini-3-pro")
    (response,) = inner(made, "functionResponse")
    assert response["response"] == {"output": "here"}
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": PICTURE}}]


def test_im_1_for_older_models_it_stands_right_after() -> None:
    result = anthropic_result("c1", [{"type": "text", "text": "here"}, picture()])
    made = to_gemini(anthropic_turn([anthropic_call("c1")], [result]), "anthropic", model="gemini-2.5-flash")
    parts = contents(made)[2]["parts"]
    assert [next(iter(part)) for part in parts] == ["functionResponse", "inlineData"]


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gemini-3-pro"])
def test_im_3_each_image_stays_with_its_own_result(model: str) -> None:
    calls = [anthropic_call("c1"), anthropic_call("c2")]
    results = [anthropic_result("c1", [picture("aaaa")]), anthropic_result("c2", [picture("bbbb")])]
    made = to_gemini(anthropic_turn(calls, results), "anthropic", model=model)
    again = tw.translate(made, "gemini", "anthropic", model="m").value
    blocks = [block for message in again["messages"] for block in message["content"] if isinstance(block, dict)]
    seen = [block["content"][-1]["source"]["data"] for block in blocks if block["type"] == "tool_result"]
    assert seen == ["aaaa", "bbbb"]


def test_er_3_what_went_wrong_is_under_error() -> None:
    body = anthropic_turn([anthropic_call("c1")], [{**anthropic_result("c1", "no such city"), "is_error": True}])
    assert inner(to_gemini(body, "anthropic"), "functionResponse")[0]["response"] == {"error": "no such city"}
    again = tw.translate(to_gemini(body, "anthropic"), "gemini", "anthropic", model="m").value
    assert again["messages"][2]["content"][0]["is_error"] is True


@pytest.mark.parametrize(
    ("target", "word"),
    [("anthropic", '"tool_use"'), ("openai-chat", '"tool_calls"'), ("openai-responses", "completed")],
)
def test_sr_1_a_stop_in_a_later_chunk_still_ends_at_the_call(target: str, word: str) -> None:
    wire = events(chunk(gemini_call("Rome")), chunk({"text": ""}, reason="STOP"))
    told = b"".join(tw.translate_stream([wire], "gemini", target)).decode()
    assert word in told
    assert '"stop"' not in told
    assert '"end_turn"' not in told


def test_em_5_an_answer_that_was_all_thought_is_one_empty_choice() -> None:
    body = {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS", "index": 0}]}
    told = tw.translate(body, "gemini", "openai-chat", "response").value
    assert len(told["choices"]) == 1
    assert told["choices"][0]["finish_reason"] == "length"
    assert not told["choices"][0]["message"]["content"]


@pytest.mark.parametrize("output", ['{"cut": [1, 2', "{plist}", "[not json", '{"a": 1}'])
def test_ar_8_output_that_looks_like_json_is_sent_as_the_text_that_it_is(output: str) -> None:
    made = to_gemini(responses_turn([responses_call("c1")], [responses_output("c1", output)]), "openai-responses")
    assert inner(made, "functionResponse")[0]["response"] == {"output": output}


def test_ar_9_references_in_an_output_are_text() -> None:
    output = json.dumps({"$ref": "#/$defs/a", "$defs": {"a": {}}})
    made = to_gemini(chat_turn([chat_call("c1")], [chat_result("c1", output)]), "openai-chat")
    assert inner(made, "functionResponse")[0]["response"] == {"output": output}


def test_pa_7_parallel_calls_are_items_of_their_own() -> None:
    answer = gemini_answer(gemini_call("Paris"), gemini_call("Rome"))
    items = tw.translate(answer, "gemini", "openai-responses", "response").value["output"]
    assert [json.loads(item["arguments"]) for item in items] == [{"city": "Paris"}, {"city": "Rome"}]


def test_na_3_names_that_gemini_refuses_are_changed_and_restored() -> None:
    names = ["1st tool", "1st/tool", "a.b:c-d", "x" * 90]
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    made = to_gemini(chat_request(tools=tools), "openai-chat")
    declared = [one["name"] for one in made["tools"][0]["functionDeclarations"]]
    assert len(set(declared)) == len(names)
    assert declared[2] == names[2]
    assert tw.check(made, "gemini") == []
    answer = gemini_answer({"functionCall": {"name": declared[0], "args": {}}})
    told = tw.translate(answer, "gemini", "openai-chat", "response", request=chat_request(tools=tools)).value
    assert told["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == names[0]


def test_sy_7_system_text_is_an_instruction_or_a_reminder() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "system", "content": "It is late."},
        {"role": "user", "content": "Go on."},
    ]
    made = to_gemini({"model": "m", "messages": messages}, "openai-chat")
    assert made["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    reminder = contents(made)[1]
    assert reminder["role"] == "user"
    assert reminder["parts"][0]["text"] == "<system-reminder>\nIt is late.\n</system-reminder>"


def test_sv_13_search_beside_functions_asks_for_the_calls_to_be_shown() -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}, {"name": "f", "input_schema": {"type": "object"}}]
    made = tw.translate(anthropic_request(tools=tools), "anthropic", "gemini", model="gemini-3-pro")
    assert made.value["tools"][1] == {"googleSearch": {}}
    assert made.value["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert "/tools/0" in {loss.path for loss in made.losses}
    older = tw.translate(anthropic_request(tools=tools), "anthropic", "gemini", model="gemini-2.5-pro")
    assert len(older.value["tools"]) == 1
    assert "/tools/0" in {loss.path for loss in older.losses}
