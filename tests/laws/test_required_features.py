"""Against cheap passing: what must arrive as what it is, for every pair and body. A report is no excuse here."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import pytest

import toolwire as tw
from tests.support.canonical_requests import (
    client_function_calls,
    conversation_texts,
    function_calls,
    function_results,
    request_parts,
)
from tests.support.samples import recorded_bodies
from toolwire.canonical.computer import Screenshot, Type
from toolwire.canonical.content import Inline, Media, SettingChange, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.encoding.computer import FUNCTION_ADAPTER
from toolwire.codec.interface import Route
from toolwire.protocols import PROTOCOLS

Feature = Callable[[Request], Any]


def system(request: Request) -> list[str]:
    """What leads the conversation; later system text is told in other ways where there is no place for it."""
    told = [part.text for part in request.system or () if part.text.strip()]
    for message in request.messages:
        if message.role not in ("system", "developer"):
            return ["\n\n".join(told)] if told else []
        told += [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
    return []  # nobody spoke: where a user must begin, it is the user's


def actions(request: Request) -> list[Any]:
    """What is done with a screen that every form can say, and can be read again without knowing its size."""
    own = [part for part in request_parts(request) if isinstance(part, ToolCall)]
    uses = [call.screen or FUNCTION_ADAPTER.decode_call(call, None) for call in own]
    done = [action for use in uses if use is not None for action in use.actions]
    return [action for action in done if isinstance(action, Screenshot | Type)]


def schemas(request: Request) -> dict[str, Any]:
    declared = [(tool.name, tool.parameters) for tool in _functions(request)]
    return {name: json.loads(bytes(schema)) for name, schema in declared if schema is not None}


def descriptions(request: Request) -> dict[str, Any]:
    return {tool.name: tool.description for tool in _functions(request) if tool.description}


def choice(request: Request) -> Any:
    chosen = request.tool_choice
    if chosen is None or not schemas(request) or chosen.mode in (None, "allowed"):
        return None
    return chosen.mode, [name.name for name in chosen.names if name.kind == "function"]


def serial(request: Request) -> Any:
    """One call at a time was asked for."""
    wanted = request.tool_choice is not None and request.tool_choice.parallel is False and bool(schemas(request))
    return True if wanted and request.tool_choice is not None and request.tool_choice.mode != "none" else None


def images(request: Request) -> list[str]:
    seen = [part for message in request.messages if message.role == "user" for part in message.parts]
    return [data for part in seen if isinstance(part, Media) and (data := _image(part)) is not None]


def result_images(request: Request) -> list[str]:
    own = [
        part
        for part in request_parts(request)
        if isinstance(part, ToolResult) and part.status == "ok" and not part.native
    ]
    own = [result for result in own if result.screen is None]
    media = [inner for result in own for inner in result.content or () if isinstance(inner, Media)]
    return [data for one in media if (data := _image(one)) is not None]


def failed_results(request: Request) -> list[Any]:
    asked = {call.id: call.name for call in client_function_calls(request) if call.id}
    own = [part for part in request_parts(request) if isinstance(part, ToolResult) and part.call_id in asked]
    return [asked[str(result.call_id)] for result in own if result.status != "ok"]


def limit(request: Request) -> Any:
    """At least 16, the least that every provider takes."""
    told = request.sampling and request.sampling.max_tokens
    return told if told and told >= 16 else None


def parameter(name: str) -> Feature:
    def told(request: Request) -> Any:
        return request.sampling and getattr(request.sampling, name)

    told.__name__ = name
    return told


temperature, top_p, top_k, seed = (parameter(name) for name in ("temperature", "top_p", "top_k", "seed"))
penalties = [parameter("frequency_penalty"), parameter("presence_penalty")]
logprobs = [parameter("logprobs"), parameter("top_logprobs")]


def several(request: Request) -> Any:
    """More than one answer: one is what there is anyway."""
    told = request.sampling and request.sampling.n
    return told if told and told > 1 else None


def stops(request: Request) -> list[str]:
    """Blank ones are refused by some."""
    told = request.sampling.stop if request.sampling is not None else None
    return [text for text in told or () if text.strip()]


def effort(request: Request) -> Any:
    """The efforts that all have, as last changed. Some models can't think and call functions at once in Chat, some know
    no effort."""
    parts = [part for message in request.messages for part in message.parts]
    changes = [part.thinking for part in parts if isinstance(part, SettingChange) and part.thinking is not None]
    told = next((one.effort for one in reversed([request.thinking, *changes]) if one is not None and one.effort), None)
    if re.search(r"claude-(sonnet|haiku)-4[.-]5", request.model or ""):
        return None
    either = re.match(r"gpt-(5\.[4-9]|6)", request.model or "") and bool(request.tools)
    return told if told in ("low", "medium", "high") and not either else None


def output_schema(request: Request) -> Any:
    output = request.output
    return json.loads(bytes(output.schema)) if output is not None and output.schema is not None else None


def streamed(request: Request) -> Any:
    return request.stream


def model(request: Request) -> Any:
    return request.model


def user(request: Request) -> Any:
    return request.end_user


EVERYWHERE: list[Feature] = [
    system,
    conversation_texts,
    function_calls,
    function_results,
    actions,
    schemas,
    descriptions,
    choice,
    serial,
    images,
    result_images,
    failed_results,
    limit,
    temperature,
    top_p,
    top_k,
    seed,
    *penalties,
    several,
    *logprobs,
    stops,
    effort,
    output_schema,
    streamed,
    model,
    user,
]
"""What every pair must carry."""

LATE = {"async_late_result"}
"""Results that come turns after their calls have no place of their own in the other protocols."""

LACKS: dict[str, list[Feature]] = {
    "anthropic": [temperature, top_p, top_k, seed, *penalties, several, *logprobs],
    "openai-chat": [result_images, top_k],
    # It says logprobs in `include`, which is read as its own.
    "openai-responses": [stops, top_k, seed, *penalties, several, logprobs[0]],
    "gemini": [serial, user],
    "gemini-interactions": [serial, user, top_k, *penalties, several, *logprobs],
    "ollama": [choice, serial, user, several],
    "openrouter": [],
}
"""What a protocol has no words for."""

PAIRS = list(permutations(recorded_bodies.PROTOCOL_NAMES, 2))


def must(target: str) -> list[Feature]:
    return [feature for feature in EVERYWHERE if feature not in LACKS[target]]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_is_mapped(source: str, target: str) -> None:
    wrong = []
    for name, body in recorded_bodies.requests(source).items():
        options = recorded_bodies.address_options(source, "request")
        before = PROTOCOLS[source].decode_request(json.dumps(body).encode(), Route(**options))
        try:
            encoded = tw.translate(body, source, target, **options)
        except tw.LossyTranslationError:
            continue
        after = PROTOCOLS[target].decode_request(encoded.to_bytes(), encoded.route)
        for feature in must(target):
            if feature is function_results and name in LATE:
                continue
            if choice in LACKS[target] and feature in (schemas, descriptions) and _chooses(before):
                continue  # without words for a choice, it is kept by leaving out tools
            if lost := _lost(feature(before), feature, after):
                wrong.append(f"{feature.__name__}: {name}: {str(lost)[:150]}")
    assert wrong == []


def _lost(said: Any, feature: Feature, after: Request) -> Any:
    if not said:
        return None
    arrived = feature(after)
    if isinstance(said, list | dict):
        return [one for one in said if one not in arrived]
    return said if said != arrived else None


def test_each_feature_is_tried_with_each_target() -> None:
    """A feature that no body has would pass for nothing."""
    requests = {
        source: [
            PROTOCOLS[source].decode_request(json.dumps(body).encode(), Route(model="m"))
            for body in recorded_bodies.fixture_requests(source).values()
        ]
        for source in recorded_bodies.PROTOCOL_NAMES
    }
    for target in recorded_bodies.PROTOCOL_NAMES:
        told = {
            feature.__name__
            for source in recorded_bodies.PROTOCOL_NAMES
            if source != target
            for request in requests[source]
            for feature in must(target)
            if feature(request)
        }
        assert {feature.__name__ for feature in must(target)} - told == set()


def _chooses(request: Request) -> bool:
    return request.tool_choice is not None and request.tool_choice.mode in ("none", "named", "allowed")


def _functions(request: Request) -> Iterator[FunctionTool]:
    """Functions on offer: a choice among some is kept by leaving out the others."""
    chosen = request.tool_choice
    allowed = {name.name for name in chosen.names} if chosen is not None and chosen.mode == "allowed" else None
    for tool in request.tools or ():
        if isinstance(tool, FunctionTool) and (allowed is None or tool.name in allowed):
            yield tool


def _image(media: Media) -> str | None:
    return media.source.data if media.kind == "image" and isinstance(media.source, Inline) else None
