"""Log probabilities of an answer's tokens pass between Chat, which tells them of a choice, and Responses, of a text."""

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
from toolwire.translation.stages.family import isolate_foreign_extras
from toolwire.translation.stream import StreamTranslator


def token(text: str, probability: float) -> dict[str, Any]:
    told = {"token": text, "bytes": list(text.encode()), "logprob": probability}
    return {**told, "top_logprobs": [told, {"token": "Ho", "bytes": [72, 111], "logprob": -3.5}]}


TOKENS = [token("Hi", -0.25), token(" there", -0.125)]


def of_chat(tokens: Any, content: Any = "Hi there", refusal: Any = None) -> dict[str, Any]:
    answer = chat_response({"role": "assistant", "content": content, "refusal": None}, "stop")
    answer["choices"][0]["logprobs"] = {"content": tokens, "refusal": refusal}
    return answer


def of_responses(*texts: tuple[str, Any]) -> dict[str, Any]:
    said = [{"type": "output_text", "text": text, "annotations": [], "logprobs": tokens} for text, tokens in texts]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": said}
    return responses_response(item)


def chunks(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]


def probably_lost(losses: list[tw.Loss]) -> list[str]:
    return [loss.path for loss in losses if "logprobs" in loss.path]


@pytest.mark.parametrize("other", ["openai-chat", "openrouter"])
def test_whole_answers_tell_them_both_ways(other: str) -> None:
    made = tw.translate(of_responses(("Hi there", TOKENS)), "openai-responses", other, "response")
    assert made.value["choices"][0]["logprobs"] == {"content": TOKENS, "refusal": None}
    assert probably_lost(made.losses) == []
    ChatCompletion.model_validate(made.value)
    back = tw.translate(made.value, other, "openai-responses", "response")
    assert back.value["output"][0]["content"][0]["logprobs"] == TOKENS
    assert probably_lost(back.losses) == []
    OpenAIResponse.model_validate(back.value)


def test_those_of_several_texts_are_one_choices() -> None:
    answer = of_responses(("Hi", TOKENS[:1]), (" there", TOKENS[1:]), ("!", []))
    made = tw.translate(answer, "openai-responses", "openai-chat", "response")
    assert made.value["choices"][0]["logprobs"]["content"] == TOKENS
    assert probably_lost(made.losses) == []


def test_what_only_chat_tells_is_reported() -> None:
    refused = of_chat(None, None, refusal=TOKENS)
    made = tw.translate(refused, "openai-chat", "openai-responses", "response")
    assert probably_lost(made.losses) == ["/choices/0/logprobs"]
    texts = of_chat(TOKENS, [{"type": "text", "text": "Hi"}, {"type": "text", "text": " there"}])
    made = tw.translate(texts, "openai-chat", "openai-responses", "response")
    assert probably_lost(made.losses) == ["/choices/0/logprobs"]


def test_the_official_types_want_what_others_leave_out() -> None:
    bare = [{"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": [{"token": "Ho", "logprob": -1}]}]
    made = tw.translate(of_chat(bare), "openai-chat", "openai-responses", "response").value
    OpenAIResponse.model_validate(made)
    (told,) = made["output"][0]["content"][0]["logprobs"]
    assert (told["bytes"], told["top_logprobs"]) == ([], [{"token": "Ho", "logprob": -1, "bytes": []}])
    short: list[dict[str, Any]] = [{"token": "Hi", "logprob": -0.5}]
    made = tw.translate(of_responses(("Hi", short)), "openai-responses", "openai-chat", "response").value
    ChatCompletion.model_validate(made)
    assert made["choices"][0]["logprobs"]["content"] == [short[0] | {"bytes": None, "top_logprobs": []}]


@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini"])
def test_none_are_no_loss(target: str) -> None:
    made = tw.translate(of_responses(("Hi there", [])), "openai-responses", target, "response")
    assert probably_lost(made.losses) == []


def test_a_stream_tells_them_with_their_texts() -> None:
    pieces = [("Hi", TOKENS[:1]), (" there", TOKENS[1:])]
    told = [{"delta": {"content": text}, "logprobs": {"content": tokens, "refusal": None}} for text, tokens in pieces]
    choices: list[dict[str, Any]] = [{"delta": {"role": "assistant"}}, *told, {"delta": {}, "finish_reason": "stop"}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    chat = "".join(f"data: {json.dumps({**head, 'choices': [{'index': 0, **one}]})}\n\n" for one in choices)
    stream = tw.translate_stream(chat.encode() + b"data: [DONE]\n\n", "openai-chat", "openai-responses")
    frames = chunks(b"".join(stream))
    assert probably_lost(stream.losses) == []
    deltas = [(one["delta"], one["logprobs"]) for one in frames if one["type"] == "response.output_text.delta"]
    assert deltas == pieces
    (done,) = [one for one in frames if one["type"] == "response.output_text.done"]
    assert (done["text"], done["logprobs"]) == ("Hi there", TOKENS)
    assert frames[-1]["response"]["output"][0]["content"][0]["logprobs"] == TOKENS


def test_a_stream_of_responses_tells_them_once() -> None:
    answer = of_responses(("Hi", TOKENS[:1]), (" there", TOKENS[1:]))
    stream = tw.translate_stream(body_as_stream(answer, "openai-responses"), "openai-responses", "openai-chat")
    choices = [one["choices"][0] for one in chunks(b"".join(stream)) if one["choices"]]
    found = [told for choice in choices for told in (choice["logprobs"] or {"content": []})["content"]]
    assert found == TOKENS
    assert probably_lost(stream.losses) == []


@pytest.mark.parametrize(
    ("source", "target", "answer"),
    [
        ("openai-chat", "openai-responses", of_chat(TOKENS)),
        ("openai-responses", "openai-chat", of_responses(("Hi there", TOKENS))),
    ],
)
def test_an_answer_that_came_whole_tells_them_in_a_stream(source: str, target: str, answer: dict[str, Any]) -> None:
    reader, writer = PROTOCOLS[source], PROTOCOLS[target]
    translation = StreamTranslator(reader, writer, ResponseContext())
    response = reader.decode_response(json.dumps(answer).encode(), ResponseContext())
    told = translation.translate_events(unfold(isolate_foreign_extras(response, reader, writer)))
    assert json.dumps(TOKENS, separators=(",", ":")).encode() in told
    assert probably_lost(translation.losses) == []
