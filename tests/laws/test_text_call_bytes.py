"""The law of text calls in bytes: a Chat stream cut anywhere gives what the complete body gives."""

import json
import os
import random

import pytest

from tests.support.assertions import non_empty
from tests.support.bodies.chat_text import chat_body, chat_stream
from tests.support.samples.text_calls import TextCase, all_cases, fixture_cases
from toolwire.canonical.content import Message, Part, Reasoning, ReasoningText, Text, ToolCall
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.interface import ResponseContext, TextRecovery
from toolwire.protocols import PROTOCOLS
from toolwire.translation.pipeline import adapt_response
from toolwire.translation.stages.tool_call_parsers.parser import find_open_reasoning
from toolwire.translation.stream import StreamTranslator

CHAT = PROTOCOLS["openai-chat"]
IS_COMPLETE = bool(os.environ.get("TOOLWIRE_WHOLE_CORPUS"))
SPLITS = 20 if IS_COMPLETE else 4
EACH_BYTE = 1 if IS_COMPLETE else 4
"""One in so many cases is sent byte by byte."""


def cases() -> list[TextCase]:
    """Return the cases whose streams show everything in time: reasoning that the prompt opened is known too late."""
    known = all_cases() if IS_COMPLETE else fixture_cases()
    return [case for case in known if not find_open_reasoning(case.text, "auto") and case.text]


def context_of(case: TextCase) -> ResponseContext:
    tools = tuple([FunctionTool(name=name, parameters=schema) for name, schema in case.tools.items()])
    return ResponseContext(request=Request(origin="anthropic", tools=tools), text_recovery=TextRecovery())


Outcome = tuple[list[tuple[str, object]], str | None]


def summary(response: Response) -> Outcome:
    """Return what a client sees: the parts in order, joined where they continue each other, and the stop reason."""
    parts: list[tuple[str, object]] = []
    for message in response.candidates[0].messages:
        for part in message.parts:
            kind, value = _summarize(part)
            if parts and isinstance(value, str) and parts[-1][0] == kind:
                parts[-1] = (kind, f"{parts[-1][1]}{value}")
            elif value != "":
                parts.append((kind, value))
    stop = response.candidates[0].stop
    return parts, None if stop is None else stop.reason


def _summarize(part: Part) -> tuple[str, object]:
    match part:
        case Text():
            return "text", part.text
        case Reasoning():
            return "reasoning", "".join([block.text for block in part.content if isinstance(block, ReasoningText)])
        case ToolCall():
            return "call", (part.name, json.loads(part.arguments))
        case _:
            raise AssertionError(part)


def _by_kind(outcome: Outcome) -> Outcome:
    """Return an outcome with all text first."""
    parts, stop = outcome
    texts = {kind: "".join([str(value) for name, value in parts if name == kind]) for kind in ("reasoning", "text")}
    return [*texts.items(), *[part for part in parts if part[0] == "call"]], stop


def translate_stream(pieces: list[bytes], context: ResponseContext, writer: str) -> Response:
    translator = StreamTranslator(CHAT, PROTOCOLS[writer], context)
    data = b"".join([*[translator.feed(piece) for piece in pieces], translator.close()])
    decoder = PROTOCOLS[writer].stream_decoder(ResponseContext())
    return fold([*decoder.feed(data), *decoder.close()])


def cut(data: bytes, source: random.Random) -> list[bytes]:
    places = sorted(source.randrange(len(data) + 1) for _ in range(source.randrange(1, 30)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


@pytest.mark.parametrize("writer", ["anthropic", "openai-chat"])
def test_a_stream_cut_at_any_byte_gives_what_the_body_gives(writer: str) -> None:
    source = random.Random(11)
    for number, case in enumerate(non_empty(cases())):
        context, finish = context_of(case), "stop" if case.finished else "length"
        body = json.dumps(chat_body(case.text, finish=finish)).encode()
        decoded = CHAT.decode_response(body, context)
        adapted = adapt_response(decoded, CHAT, PROTOCOLS[writer], context)
        encoded = PROTOCOLS[writer].encode_response(adapted, context).to_bytes()
        expected = summary(PROTOCOLS[writer].decode_response(encoded, ResponseContext()))
        texts = [case.text[start : start + 9] for start in range(0, len(case.text), 9)]
        raw = [json.dumps(piece, ensure_ascii=False) for piece in texts]
        stream = b"".join(chat_stream(texts, finish=finish))
        for escaped, text in zip(texts, raw, strict=True):  # half of the marks are several bytes long
            stream = stream.replace(json.dumps(escaped).encode(), text.encode(errors="surrogatepass"))
        splits = [cut(stream, source) for _ in range(SPLITS)]
        if number % EACH_BYTE == 0:
            splits.append([stream[place : place + 1] for place in range(len(stream))])
        for pieces in splits:
            streamed = summary(translate_stream(pieces, context, writer))
            if writer == "openai-chat":  # a body has one text, before its calls
                streamed, expected = _by_kind(streamed), _by_kind(expected)
            assert streamed == expected, case.id


def test_the_summary_keeps_the_order_of_parts() -> None:
    parts = (Text(text="a"), ToolCall(id=None, name="f", arguments="{}"), Text(text="b"), Text(text="c"))
    candidate = Candidate(index=0, messages=(Message(role="assistant", parts=parts),), stop=Stop(reason="tool_use"))
    assert summary(Response(origin="", candidates=(candidate,))) == (
        [("text", "a"), ("call", ("f", {})), ("text", "bc")],
        "tool_use",
    )
