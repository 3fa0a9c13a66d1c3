"""Features that every pair of protocols must map: here, a reported loss is no excuse."""

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
    """The leading system text; later system text may be moved."""
    texts = [part.text for part in request.system or () if part.text.strip()]
    for message in request.messages:
        if message.role not in ("system", "developer"):
            return ["\n\n".join(texts)] if texts else []
        texts += [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
    return []  # system text alone becomes the user turn where one is required


def actions(request: Request) -> list[Any]:
    """Screen actions that every protocol supports and that need no display size."""
    calls = [part for part in request_parts(request) if isinstance(part, ToolCall)]
    uses = [call.screen or FUNCTION_ADAPTER.decode_call(call, None) for call in calls]
    actions_done = [action for use in uses if use is not None for action in use.actions]
    return [action for action in actions_done if isinstance(action, Screenshot | Type)]


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


def no_parallel_calls(request: Request) -> Any:
    """Whether parallel calls are disabled."""
    disabled = request.tool_choice is not None and request.tool_choice.parallel is False and bool(schemas(request))
    return True if disabled and request.tool_choice is not None and request.tool_choice.mode != "none" else None


def images(request: Request) -> list[str]:
    parts = [part for message in request.messages if message.role == "user" for part in message.parts]
    return [data for part in parts if isinstance(part, Media) and (data := _image(part)) is not None]


def result_images(request: Request) -> list[str]:
    results = [
        part
        for part in request_parts(request)
        if isinstance(part, ToolResult) and part.status == "ok" and not part.native
    ]
    results = [result for result in results if result.screen is None]
    media = [inner for result in results for inner in result.content or () if isinstance(inner, Media)]
    return [data for part in media if (data := _image(part)) is not None]


def failed_results(request: Request) -> list[Any]:
    names = {call.id: call.name for call in client_function_calls(request) if call.id}
    results = [part for part in request_parts(request) if isinstance(part, ToolResult) and part.call_id in names]
    return [names[str(result.call_id)] for result in results if result.status != "ok"]


def limit(request: Request) -> Any:
    """The token limit, if it is at least 16, the minimum of all providers."""
    max_tokens = request.sampling and request.sampling.max_tokens
    return max_tokens if max_tokens and max_tokens >= 16 else None


def parameter(name: str) -> Feature:
    def sampling_parameter(request: Request) -> Any:
        return request.sampling and getattr(request.sampling, name)

    sampling_parameter.__name__ = name
    return sampling_parameter


top_p, top_k, seed = (parameter(name) for name in ("top_p", "top_k", "seed"))


def temperature(request: Request) -> Any:
    """The temperature, if it is at most 2, the limit of most providers."""
    value = None if request.sampling is None else request.sampling.temperature
    return value if value is not None and value <= 2 else None


penalties = [parameter("frequency_penalty"), parameter("presence_penalty")]
logprobs = [parameter("logprobs"), parameter("top_logprobs")]


def candidate_count(request: Request) -> Any:
    """The number of candidates, if more than one."""
    count = request.sampling and request.sampling.n
    return count if count and count > 1 else None


def stops(request: Request) -> list[str]:
    """Stop sequences that are not blank; some providers reject blank ones."""
    sequences = request.sampling.stop if request.sampling is not None else None
    return [text for text in sequences or () if text.strip()]


def effort(request: Request) -> Any:
    """The latest effort, if every protocol has it.

    Some Chat models cannot reason and call functions at once, and some support no effort.
    """
    parts = [part for message in request.messages for part in message.parts]
    changes = [part.thinking for part in parts if isinstance(part, SettingChange) and part.thinking is not None]
    latest = next(
        (
            thinking.effort
            for thinking in reversed([request.thinking, *changes])
            if thinking is not None and thinking.effort
        ),
        None,
    )
    if re.search(r"claude-(sonnet|haiku)-4[.-]5", request.model or ""):
        return None
    no_reasoning = re.match(r"gpt-(5\.[4-9]|6)", request.model or "") and bool(request.tools)
    return latest if latest in ("low", "medium", "high") and not no_reasoning else None


def output_schema(request: Request) -> Any:
    output = request.output
    return json.loads(bytes(output.schema)) if output is not None and output.schema is not None else None


def streamed(request: Request) -> Any:
    return request.stream


def model(request: Request) -> Any:
    return request.model


def user(request: Request) -> Any:
    return request.end_user


FEATURES: list[Feature] = [
    system,
    conversation_texts,
    function_calls,
    function_results,
    actions,
    schemas,
    descriptions,
    choice,
    no_parallel_calls,
    images,
    result_images,
    failed_results,
    limit,
    temperature,
    top_p,
    top_k,
    seed,
    *penalties,
    candidate_count,
    *logprobs,
    stops,
    effort,
    output_schema,
    streamed,
    model,
    user,
]
"""Features that every pair must map."""

LATE_RESULTS = {"async_late_result"}
"""Fixtures whose results come turns after their calls, which other protocols do not support."""

UNSUPPORTED: dict[str, list[Feature]] = {
    "anthropic": [temperature, top_p, top_k, seed, *penalties, candidate_count, *logprobs],
    "openai-chat": [result_images, top_k],
    # Responses requests logprobs in `include`, which stays vendor-specific.
    "openai-responses": [stops, top_k, seed, *penalties, candidate_count, logprobs[0]],
    "gemini": [no_parallel_calls, user],
    "gemini-interactions": [no_parallel_calls, user, top_k, *penalties, candidate_count, *logprobs],
    "ollama": [choice, no_parallel_calls, user, candidate_count],
    "openrouter": [],
}
"""Features that a protocol does not support."""

PAIRS = list(permutations(recorded_bodies.PROTOCOL_NAMES, 2))


def required_features(target: str) -> list[Feature]:
    return [feature for feature in FEATURES if feature not in UNSUPPORTED[target]]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_required_features_are_mapped(source: str, target: str) -> None:
    wrong = []
    bodies = recorded_bodies.sample_for_target(recorded_bodies.requests(source), target, one_in=1)
    for name, body in bodies.items():
        options = recorded_bodies.address_options(source, "request")
        before = PROTOCOLS[source].decode_request(json.dumps(body).encode(), Route(**options))
        try:
            encoded = tw.translate(body, source, target, **options)
        except tw.LossyTranslationError:
            continue
        after = PROTOCOLS[target].decode_request(encoded.to_bytes(), encoded.route)
        for feature in required_features(target):
            if feature is function_results and name in LATE_RESULTS:
                continue
            if choice in UNSUPPORTED[target] and feature in (schemas, descriptions) and _limits_tools(before):
                continue  # without a tool choice, excluded tools are dropped
            if lost := _missing(feature(before), feature, after):
                wrong.append(f"{feature.__name__}: {name}: {str(lost)[:150]}")
    assert wrong == []


def _missing(expected: Any, feature: Feature, after: Request) -> Any:
    if not expected:
        return None
    arrived = feature(after)
    if isinstance(expected, list | dict):
        return [value for value in expected if value not in arrived]
    return expected if expected != arrived else None


def test_each_feature_occurs_for_each_target() -> None:
    """A feature without any fixture would pass without being tested."""
    requests = {
        source: [
            PROTOCOLS[source].decode_request(json.dumps(body).encode(), Route(model="m"))
            for body in recorded_bodies.fixture_requests(source).values()
        ]
        for source in recorded_bodies.PROTOCOL_NAMES
    }
    for target in recorded_bodies.PROTOCOL_NAMES:
        occurring = {
            feature.__name__
            for source in recorded_bodies.PROTOCOL_NAMES
            if source != target
            for request in requests[source]
            for feature in required_features(target)
            if feature(request)
        }
        assert {feature.__name__ for feature in required_features(target)} - occurring == set()


def _limits_tools(request: Request) -> bool:
    return request.tool_choice is not None and request.tool_choice.mode in ("none", "named", "allowed")


def _functions(request: Request) -> Iterator[FunctionTool]:
    """Yield the functions on offer, without those that an allowed-tools choice excludes."""
    chosen = request.tool_choice
    allowed = {name.name for name in chosen.names} if chosen is not None and chosen.mode == "allowed" else None
    for tool in request.tools or ():
        if isinstance(tool, FunctionTool) and (allowed is None or tool.name in allowed):
            yield tool


def _image(media: Media) -> str | None:
    return media.source.data if media.kind == "image" and isinstance(media.source, Inline) else None
