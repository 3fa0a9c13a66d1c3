"""What providers cite, as clients of other vendors read it: whole and in a stream."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.hosted_calls import GEMINI, HOSTED_CALLS, INTERACTIONS, OLLAMA, ROUTER, response_with_blocks
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from tests.support.samples import recorded_bodies
from tests.support.samples.json_leaves import resolve
from toolwire.canonical.fold import unfold
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

SAID = "Å: It rains in Oslo."
GROUNDED = {
    "groundingChunks": [{"web": {"uri": "https://a.test/page", "title": "A"}}],
    "groundingSupports": [
        {"segment": {"startIndex": 4, "endIndex": 12, "text": "It rains"}, "groundingChunkIndices": [0]}
    ],
}
PAGE = {"url": "https://a.test/page", "title": "A"}


def said(protocol: str) -> dict[str, Any]:
    """An answer that cites a page for some of its words, in each vendor's way: characters here, bytes there."""
    characters = {"start_index": 3, "end_index": 11}
    match protocol:
        case "gemini":
            body = response_with_blocks(protocol, [{"text": SAID}])
            body["candidates"][0]["groundingMetadata"] = GROUNDED
            return body
        case "openai-responses":
            text = {
                "type": "output_text",
                "text": SAID,
                "annotations": [{"type": "url_citation", **PAGE, **characters}],
            }
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
            return response_with_blocks(protocol, [item])
        case "gemini-interactions":
            note = {"type": "url_citation", **PAGE, "start_index": 4, "end_index": 12}
            text = {"type": "text", "text": SAID, "annotations": [note]}
            return response_with_blocks(protocol, [{"type": "model_output", "content": [text]}])
        case _:
            note = {"type": "url_citation", "url_citation": {**PAGE, **characters}}
            message = {"role": "assistant", "content": SAID, "annotations": [note]}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


CITING = (RESPONSES, CHAT, GEMINI, INTERACTIONS, ROUTER)


def cited(protocol: str, body: Any) -> Any:
    match protocol:
        case "gemini":
            return body["candidates"][0]["groundingMetadata"]
        case "openai-responses":
            return body["output"][0]["content"][0]["annotations"]
        case "gemini-interactions":
            return body["steps"][0]["content"][0]["annotations"]
        case _:
            return body["choices"][0]["message"]["annotations"]


@pytest.mark.parametrize("target", CITING)
@pytest.mark.parametrize("source", CITING)
def test_citations_keep_their_pages_and_places(source: str, target: str) -> None:
    made = tw.translate(said(source), source, target, "response")
    assert cited(target, made.value) == cited(target, said(target))
    assert not [loss for loss in made.losses if "itation" in loss.path or "rounding" in loss.path]


@pytest.mark.parametrize("source", CITING)
def test_a_client_of_anthropic_reads_them_on_the_text(source: str) -> None:
    made = tw.translate(said(source), source, ANTHROPIC, "response")
    (block,) = made.value["content"]
    (note,) = block["citations"]
    assert (note["type"], note["url"], note["title"]) == ("web_search_result_location", *PAGE.values())
    reason = "the target cites complete texts only"
    lost = [loss.path.rpartition("/")[2] for loss in made.losses if loss.reason == reason]
    assert len(lost) == 2


def test_citations_of_anthropic_are_of_the_whole_text() -> None:
    note = {"type": "web_search_result_location", **PAGE, "cited_text": "rain", "encrypted_index": "E"}
    body = response_with_blocks(ANTHROPIC, [{"type": "text", "text": SAID, "citations": [note]}])
    made = tw.translate(body, ANTHROPIC, GEMINI, "response").value
    (support,) = made["candidates"][0]["groundingMetadata"]["groundingSupports"]
    assert support["segment"] == {"startIndex": 0, "endIndex": len(SAID.encode()), "text": SAID}


@pytest.mark.parametrize("source", CITING)
def test_where_there_is_no_place_for_them_they_are_reported(source: str) -> None:
    paths = {loss.path for loss in tw.translate(said(source), source, OLLAMA, "response").losses}
    expected = {
        GEMINI: {f"/candidates/0/groundingMetadata/{name}/0" for name in GROUNDED},
        RESPONSES: {"/output/0/content/0/annotations/0"},
        INTERACTIONS: {"/steps/0/content/0/annotations/0"},
    }
    assert expected.get(source, {"/choices/0/message/annotations/0"}) <= paths


def test_grounding_in_anything_but_pages_stays_what_only_gemini_has() -> None:
    body = said(GEMINI)
    place = {"maps": {"uri": "https://maps.test", "title": "A"}}
    body["candidates"][0]["groundingMetadata"] = {**GROUNDED, "groundingChunks": [place]}
    made = tw.translate(body, GEMINI, CHAT, "response")
    assert "annotations" not in made.value["choices"][0]["message"]
    assert "/candidates/0/groundingMetadata" in {loss.path for loss in made.losses}
    assert tw.translate(body, GEMINI, GEMINI, "response").value == body


@pytest.mark.parametrize(
    ("native", "content", "told"),
    [
        ("mcp_tool_result", "not found", "not found"),
        (
            "web_fetch_tool_result",
            {
                "type": "web_fetch_result",
                "url": "https://a.example",
                "content": {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "18C"}},
            },
            "https://a.example\n18C",
        ),
    ],
)
def test_what_a_server_found_is_told_to_a_model(native: str, content: Any, told: str) -> None:
    found = {"type": native, "tool_use_id": "srvtoolu_1", "content": content}
    messages = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": [found]}]
    body = {"model": "m", "max_tokens": 9, "messages": messages}
    made = tw.translate(body, "anthropic", "ollama").value
    assert made["messages"][1]["content"] == f"[{native}: {told}]"


def test_a_call_without_arguments_is_told_without_them() -> None:
    steps = [{"type": "file_search_call", "id": "fs1"}, {"type": "user_input", "content": []}]
    made = tw.translate({"model": "m", "input": steps}, INTERACTIONS, CHAT).value
    assert made["messages"][0] == {"role": "assistant", "content": "[file_search was called]"}


def _told_by(name: str, source: str) -> bytes:
    """The stream in which the protocol itself would have told a fixture."""
    codec = PROTOCOLS[source]
    encoder = codec.stream_encoder(ResponseContext())
    body = json.dumps(recorded_bodies.fixture_responses(source)[name]).encode()
    return encoder.encode(list(unfold(codec.decode_response(body, ResponseContext())))) + encoder.close()


def test_streamed_grounding_is_citations_elsewhere() -> None:
    body = recorded_bodies.fixture_responses(GEMINI)["grounded"]
    page = body["candidates"][0]["groundingMetadata"]["groundingChunks"][0]["web"]["uri"]
    for target in (ANTHROPIC, RESPONSES, "openai-chat", "gemini-interactions", "openrouter"):
        assert page in b"".join(tw.translate_stream([_told_by("grounded", GEMINI)], GEMINI, target)).decode(), target


def test_streamed_citations_are_grounding_at_gemini() -> None:
    wire = b"".join(tw.translate_stream([_told_by("annotations", "openai-chat")], "openai-chat", GEMINI))
    last = json.loads(wire.split(b"data: ")[-1])["candidates"][0]["groundingMetadata"]
    assert last["groundingChunks"] == [{"web": {"uri": "https://example.com/paris", "title": "Paris weather"}}]
    (support,) = last["groundingSupports"]
    assert support["segment"] == {"startIndex": 0, "endIndex": 20, "text": "18 degrees in Paris."}


INVENTED = {
    (RESPONSES, ANTHROPIC, "web_search"): [("/output/0", "/content/1/content/0/encrypted_content")],
    (ANTHROPIC, RESPONSES, "code_execution"): [("/content/1", "/output/0/container_id")],
    (GEMINI, RESPONSES, "code_execution"): [("/candidates/0/content/parts/1", "/output/0/container_id")],
    (INTERACTIONS, RESPONSES, "code_execution"): [("/steps/1", "/output/0/container_id")],
}


@pytest.mark.parametrize(("source", "target", "kind"), INVENTED)
def test_a_proof_that_nobody_gave_is_reported_as_invented(source: str, target: str, kind: str) -> None:
    made = tw.translate(response_with_blocks(source, HOSTED_CALLS[source][kind]), source, target, "response")
    invented = [(loss.path, str(loss.target)) for loss in made.losses if loss.kind == "added"]
    assert invented == INVENTED[source, target, kind]
    assert [resolve(made.value, place) for _, place in invented] == [""]


@pytest.mark.parametrize("source", CITING)
def test_so_is_the_proof_of_a_citation(source: str) -> None:
    made = tw.translate(said(source), source, ANTHROPIC, "response")
    (place,) = [str(loss.target) for loss in made.losses if loss.kind == "added"]
    assert place == "/content/0/citations/0/encrypted_index"
    assert resolve(made.value, place) == ""


def test_each_invented_proof_is_named_where_it_stands() -> None:
    search, code = HOSTED_CALLS[RESPONSES]["web_search"][0], HOSTED_CALLS[ANTHROPIC]["code_execution"]
    found = [{"type": "url", "url": f"https://{name}.test"} for name in "ab"]
    many = {**search, "id": "ws_2", "action": {**search["action"], "sources": found}}
    made = tw.translate(response_with_blocks(RESPONSES, [search, many]), RESPONSES, ANTHROPIC, "response")
    assert [loss.target for loss in made.losses if loss.kind == "added"] == [
        "/content/1/content/0/encrypted_content",
        "/content/3/content/0/encrypted_content",
        "/content/3/content/1/encrypted_content",
    ]
    text = {"type": "text", "text": "So:"}
    blocks = [text, *code, text, {**code[0], "id": "srvtoolu_2"}]
    body = tw.translate(response_with_blocks(ANTHROPIC, blocks), ANTHROPIC, RESPONSES, "response")
    places = [str(loss.target) for loss in body.losses if loss.kind == "added"]
    assert places == ["/output/1/container_id", "/output/3/container_id"]
    assert [resolve(body.value, place) for place in places] == ["", ""]
