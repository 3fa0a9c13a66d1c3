"""Log probabilities between Chat, which attaches them to choices, and Responses, which attaches them to texts."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response as OpenAIResponse

import toolwire as tw
from tests.support.bodies.minimal import chat_response, responses_response
from tests.support.codecs import body_as_stream
from toolwire.canonical.fold import unfold
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS
from toolwire.translation.stream import StreamTranslator


def token(text: str, probability: float) -> dict[str, Any]:
    entry = {"token": text, "bytes": list(text.encode()), "logprob": probability}
    return {**entry, "top_logprobs": [entry, {"token": "Ho", "bytes": [72, 111], "logprob": -3.5}]}


TOKENS = [token("Hi", -0.25), token(" there", -0.125)]


def chat_body(tokens: Any, content: Any = "Hi there", refusal: Any = None) -> dict[str, Any]:
    response = chat_response({"role": "assistant", "content": content, "refusal": None}, "stop")
    response["choices"][0]["logprobs"] = {"content": tokens, "refusal": refusal}
    return response


def responses_body(*texts: tuple[str, Any]) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": tokens} for text, tokens in texts]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    return responses_response(item)


def chunks(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]


def lost_logprobs(losses: list[tw.Loss]) -> list[str]:
    return [loss.path for loss in losses if "logprobs" in loss.path]


@pytest.mark.parametrize("other", ["openai-chat", "openrouter"])
def test_logprobs_translate_both_ways(other: str) -> None:
    translation = tw.translate(responses_body(("Hi there", TOKENS)), "openai-responses", other, "response")
    assert translation.value["choices"][0]["logprobs"] == {"content": TOKENS, "refusal": None}
    assert lost_logprobs(translation.losses) == []
    ChatCompletion.model_validate(translation.value)
    back = tw.translate(translation.value, other, "openai-responses", "response")
    assert back.value["output"][0]["content"][0]["logprobs"] == TOKENS
    assert lost_logprobs(back.losses) == []
    OpenAIResponse.model_validate(back.value)


def test_logprobs_of_several_texts_join_one_choice() -> None:
    response = responses_body(("Hi", TOKENS[:1]), (" there", TOKENS[1:]), ("!", []))
    translation = tw.translate(response, "openai-responses", "openai-chat", "response")
    assert translation.value["choices"][0]["logprobs"]["content"] == TOKENS
    assert lost_logprobs(translation.losses) == []


def test_logprobs_without_a_single_text_are_reported() -> None:
    refused = chat_body(None, None, refusal=TOKENS)
    translation = tw.translate(refused, "openai-chat", "openai-responses", "response")
    assert lost_logprobs(translation.losses) == ["/choices/0/logprobs"]
    texts = chat_body(TOKENS, [{"type": "text", "text": "Hi"}, {"type": "text", "text": " there"}])
    translation = tw.translate(texts, "openai-chat", "openai-responses", "response")
    assert lost_logprobs(translation.losses) == ["/choices/0/logprobs"]


def test_missing_logprob_members_are_filled_in() -> None:
    bare = [{"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": [{"token": "Ho", "logprob": -1}]}]
    translated = tw.translate(chat_body(bare), "openai-chat", "openai-responses", "response").value
    OpenAIResponse.model_validate(translated)
    (filled,) = translated["output"][0]["content"][0]["logprobs"]
    assert (filled["bytes"], filled["top_logprobs"]) == ([], [{"token": "Ho", "logprob": -1, "bytes": []}])
    short: list[dict[str, Any]] = [{"token": "Hi", "logprob": -0.5}]
    translated = tw.translate(responses_body(("Hi", short)), "openai-responses", "openai-chat", "response").value
    ChatCompletion.model_validate(translated)
    assert translated["choices"][0]["logprobs"]["content"] == [short[0] | {"bytes": None, "top_logprobs": []}]


@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini"])
def test_empty_logprobs_are_no_loss(target: str) -> None:
    translation = tw.translate(responses_body(("Hi there", [])), "openai-responses", target, "response")
    assert lost_logprobs(translation.losses) == []


def test_stream_sends_logprobs_with_their_texts() -> None:
    pieces = [("Hi", TOKENS[:1]), (" there", TOKENS[1:])]
    content_choices = [
        {"delta": {"content": text}, "logprobs": {"content": tokens, "refusal": None}} for text, tokens in pieces
    ]
    choices: list[dict[str, Any]] = [
        {"delta": {"role": "assistant"}},
        *content_choices,
        {"delta": {}, "finish_reason": "stop"},
    ]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    chat = "".join(f"data: {json.dumps({**head, 'choices': [{'index': 0, **item}]})}\n\n" for item in choices)
    stream = tw.translate_stream(chat.encode() + b"data: [DONE]\n\n", "openai-chat", "openai-responses")
    frames = chunks(b"".join(stream))
    assert lost_logprobs(stream.losses) == []
    deltas = [(item["delta"], item["logprobs"]) for item in frames if item["type"] == "response.output_text.delta"]
    assert deltas == pieces
    (done,) = [item for item in frames if item["type"] == "response.output_text.done"]
    assert (done["text"], done["logprobs"]) == ("Hi there", TOKENS)
    assert frames[-1]["response"]["output"][0]["content"][0]["logprobs"] == TOKENS


def test_responses_stream_sends_logprobs_once() -> None:
    response = responses_body(("Hi", TOKENS[:1]), (" there", TOKENS[1:]))
    stream = tw.translate_stream(body_as_stream(response, "openai-responses"), "openai-responses", "openai-chat")
    choices = [chunk["choices"][0] for chunk in chunks(b"".join(stream)) if chunk["choices"]]
    tokens = [token for choice in choices for token in (choice["logprobs"] or {"content": []})["content"]]
    assert tokens == TOKENS
    assert lost_logprobs(stream.losses) == []


@pytest.mark.parametrize(
    ("source", "target", "answer"),
    [
        ("openai-chat", "openai-responses", chat_body(TOKENS)),
        ("openai-responses", "openai-chat", responses_body(("Hi there", TOKENS))),
    ],
)
def test_complete_response_streams_its_logprobs(source: str, target: str, answer: dict[str, Any]) -> None:
    reader, writer = PROTOCOLS[source], PROTOCOLS[target]
    translator = StreamTranslator(reader, writer, ResponseContext())
    response = reader.decode_response(json.dumps(answer).encode(), ResponseContext())
    out = translator.translate_events(unfold(response))
    assert json.dumps(TOKENS, separators=(",", ":")).encode() in out
    assert lost_logprobs(translator.losses) == []
