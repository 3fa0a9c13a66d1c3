"""Citations of one provider as clients of other vendors receive them, as a body and as a stream."""

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

TEXT = "Å: It rains in Oslo."
GROUNDING = {
    "groundingChunks": [{"web": {"uri": "https://a.test/page", "title": "A"}}],
    "groundingSupports": [
        {"segment": {"startIndex": 4, "endIndex": 12, "text": "It rains"}, "groundingChunkIndices": [0]}
    ],
}
PAGE = {"url": "https://a.test/page", "title": "A"}


def response_with_citation(protocol: str) -> dict[str, Any]:
    """Build a response that cites a page for some words, by characters or by bytes as the vendor does."""
    characters = {"start_index": 3, "end_index": 11}
    match protocol:
        case "gemini":
            body = response_with_blocks(protocol, [{"text": TEXT}])
            body["candidates"][0]["groundingMetadata"] = GROUNDING
            return body
        case "openai-responses":
            text = {
                "type": "output_text",
                "text": TEXT,
                "annotations": [{"type": "url_citation", **PAGE, **characters}],
            }
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
            return response_with_blocks(protocol, [item])
        case "gemini-interactions":
            note = {"type": "url_citation", **PAGE, "start_index": 4, "end_index": 12}
            text = {"type": "text", "text": TEXT, "annotations": [note]}
            return response_with_blocks(protocol, [{"type": "model_output", "content": [text]}])
        case _:
            note = {"type": "url_citation", "url_citation": {**PAGE, **characters}}
            message = {"role": "assistant", "content": TEXT, "annotations": [note]}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


CITING_PROTOCOLS = (RESPONSES, CHAT, GEMINI, INTERACTIONS, ROUTER)


def citations_in(protocol: str, body: Any) -> Any:
    match protocol:
        case "gemini":
            return body["candidates"][0]["groundingMetadata"]
        case "openai-responses":
            return body["output"][0]["content"][0]["annotations"]
        case "gemini-interactions":
            return body["steps"][0]["content"][0]["annotations"]
        case _:
            return body["choices"][0]["message"]["annotations"]


@pytest.mark.parametrize("target", CITING_PROTOCOLS)
@pytest.mark.parametrize("source", CITING_PROTOCOLS)
def test_citations_keep_their_pages_and_positions(source: str, target: str) -> None:
    translated = tw.translate(response_with_citation(source), source, target, "response")
    assert citations_in(target, translated.value) == citations_in(target, response_with_citation(target))
    assert not [loss for loss in translated.losses if "itation" in loss.path or "rounding" in loss.path]


@pytest.mark.parametrize("source", CITING_PROTOCOLS)
def test_a_client_of_anthropic_reads_citations_on_the_text(source: str) -> None:
    translated = tw.translate(response_with_citation(source), source, ANTHROPIC, "response")
    (block,) = translated.value["content"]
    (note,) = block["citations"]
    assert (note["type"], note["url"], note["title"]) == ("web_search_result_location", *PAGE.values())
    lost = [
        loss.path.rpartition("/")[2]
        for loss in translated.losses
        if loss.reason == "the target cites complete texts only"
    ]
    assert len(lost) == 2


def test_citations_of_anthropic_cover_the_complete_text() -> None:
    note = {"type": "web_search_result_location", **PAGE, "cited_text": "rain", "encrypted_index": "E"}
    body = response_with_blocks(ANTHROPIC, [{"type": "text", "text": TEXT, "citations": [note]}])
    translated = tw.translate(body, ANTHROPIC, GEMINI, "response").value
    (support,) = translated["candidates"][0]["groundingMetadata"]["groundingSupports"]
    assert support["segment"] == {"startIndex": 0, "endIndex": len(TEXT.encode()), "text": TEXT}


@pytest.mark.parametrize("source", CITING_PROTOCOLS)
def test_citations_without_equivalent_are_reported(source: str) -> None:
    paths = {loss.path for loss in tw.translate(response_with_citation(source), source, OLLAMA, "response").losses}
    expected = {
        GEMINI: {f"/candidates/0/groundingMetadata/{name}/0" for name in GROUNDING},
        RESPONSES: {"/output/0/content/0/annotations/0"},
        INTERACTIONS: {"/steps/0/content/0/annotations/0"},
    }
    assert expected.get(source, {"/choices/0/message/annotations/0"}) <= paths


def test_grounding_other_than_web_pages_is_not_translated() -> None:
    body = response_with_citation(GEMINI)
    map_chunk = {"maps": {"uri": "https://maps.test", "title": "A"}}
    body["candidates"][0]["groundingMetadata"] = {**GROUNDING, "groundingChunks": [map_chunk]}
    translated = tw.translate(body, GEMINI, CHAT, "response")
    assert "annotations" not in translated.value["choices"][0]["message"]
    assert "/candidates/0/groundingMetadata" in {loss.path for loss in translated.losses}
    assert tw.translate(body, GEMINI, GEMINI, "response").value == body


@pytest.mark.parametrize(
    ("native", "content", "expected"),
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
def test_server_tool_results_are_sent_to_the_next_model_as_text(native: str, content: Any, expected: str) -> None:
    result = {"type": native, "tool_use_id": "srvtoolu_1", "content": content}
    messages = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": [result]}]
    body = {"model": "m", "max_tokens": 9, "messages": messages}
    translated = tw.translate(body, "anthropic", "ollama").value
    assert translated["messages"][1]["content"] == f"[{native}: {expected}]"


def test_a_server_call_without_arguments_is_sent_without_them() -> None:
    steps = [{"type": "file_search_call", "id": "fs1"}, {"type": "user_input", "content": []}]
    translated = tw.translate({"model": "m", "input": steps}, INTERACTIONS, CHAT).value
    assert translated["messages"][0] == {"role": "assistant", "content": "[file_search was called]"}


def _fixture_as_stream(name: str, source: str) -> bytes:
    """Encode a fixture as a stream of its own protocol."""
    codec = PROTOCOLS[source]
    encoder = codec.stream_encoder(ResponseContext())
    body = json.dumps(recorded_bodies.fixture_responses(source)[name]).encode()
    return encoder.encode(list(unfold(codec.decode_response(body, ResponseContext())))) + encoder.close()


def test_streamed_grounding_becomes_citations() -> None:
    body = recorded_bodies.fixture_responses(GEMINI)["grounded"]
    page = body["candidates"][0]["groundingMetadata"]["groundingChunks"][0]["web"]["uri"]
    for target in (ANTHROPIC, RESPONSES, "openai-chat", "gemini-interactions", "openrouter"):
        assert (
            page in b"".join(tw.translate_stream([_fixture_as_stream("grounded", GEMINI)], GEMINI, target)).decode()
        ), target


def test_streamed_citations_become_grounding_in_gemini() -> None:
    wire = b"".join(tw.translate_stream([_fixture_as_stream("annotations", "openai-chat")], "openai-chat", GEMINI))
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
def test_empty_encrypted_content_is_reported_as_invented(source: str, target: str, kind: str) -> None:
    translated = tw.translate(response_with_blocks(source, HOSTED_CALLS[source][kind]), source, target, "response")
    invented = [(loss.path, str(loss.target)) for loss in translated.losses if loss.kind == "added"]
    assert invented == INVENTED[source, target, kind]
    assert [resolve(translated.value, path) for _, path in invented] == [""]


@pytest.mark.parametrize("source", CITING_PROTOCOLS)
def test_an_empty_encrypted_index_of_a_citation_is_reported_as_invented(source: str) -> None:
    translated = tw.translate(response_with_citation(source), source, ANTHROPIC, "response")
    (path,) = [str(loss.target) for loss in translated.losses if loss.kind == "added"]
    assert path == "/content/0/citations/0/encrypted_index"
    assert resolve(translated.value, path) == ""


def test_each_invented_value_is_reported_at_its_position() -> None:
    search, code = HOSTED_CALLS[RESPONSES]["web_search"][0], HOSTED_CALLS[ANTHROPIC]["code_execution"]
    sources = [{"type": "url", "url": f"https://{name}.test"} for name in "ab"]
    second_search = {**search, "id": "ws_2", "action": {**search["action"], "sources": sources}}
    translated = tw.translate(
        response_with_blocks(RESPONSES, [search, second_search]), RESPONSES, ANTHROPIC, "response"
    )
    assert [loss.target for loss in translated.losses if loss.kind == "added"] == [
        "/content/1/content/0/encrypted_content",
        "/content/3/content/0/encrypted_content",
        "/content/3/content/1/encrypted_content",
    ]
    text = {"type": "text", "text": "So:"}
    blocks = [text, *code, text, {**code[0], "id": "srvtoolu_2"}]
    body = tw.translate(response_with_blocks(ANTHROPIC, blocks), ANTHROPIC, RESPONSES, "response")
    paths = [str(loss.target) for loss in body.losses if loss.kind == "added"]
    assert paths == ["/output/1/container_id", "/output/3/container_id"]
    assert [resolve(body.value, path) for path in paths] == ["", ""]
