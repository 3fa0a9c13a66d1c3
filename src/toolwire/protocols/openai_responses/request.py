"""Requests of the Responses API to canonical requests and back.

Token counting (`/v1/responses/input_tokens`) takes the same body without the fields that only generation needs.
"""

import re
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import Tool
from toolwire.codec.encoding.computer import FUNCTION_ADAPTER, decode_computer_use
from toolwire.codec.encoding.computer_request import adapt_turns, use_target_tool
from toolwire.codec.encoding.hosted_tools import accepts_native, substitute_functions
from toolwire.codec.encoding.hosts import encode_user, rename_tools, with_host_names
from toolwire.codec.encoding.plan import MOVING_MARKS, IdAndNameRules, resolve_target
from toolwire.codec.encoding.tools import NameRules
from toolwire.codec.encoding.turns import Turn, assemble, leading_system_count, one_turn_per_message
from toolwire.codec.interface import EncodedBody, Route, Target
from toolwire.codec.losses import LossReport
from toolwire.codec.models.gpt import gpt_info
from toolwire.codec.token_count import TokenCountApi, select_fields
from toolwire.codec.wire.extras import collect_extras, none_to_unset, restore_extras, unset_to_none
from toolwire.codec.wire.reader import Reader, escape_pointer
from toolwire.protocols.openai_responses.computer import COMPUTER_USE
from toolwire.protocols.openai_responses.fast_path import encode_fast_foreign, encode_fast_same_protocol
from toolwire.protocols.openai_responses.hosts import (
    encode_functions,
    fit_body,
    fit_messages,
    lacks_required_text,
    limit_functions,
)
from toolwire.protocols.openai_responses.parts.messages import ItemDecoder, encode_items
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.settings import (
    CHOICE_MODES,
    LOGPROBS,
    decode_choice,
    decode_continuation,
    decode_output,
    decode_sampling,
    decode_thinking,
    encode_choice,
    encode_continuation,
    encode_output,
    encode_parallel,
    encode_sampling,
    encode_thinking,
    included_fields,
)
from toolwire.protocols.openai_responses.tools import (
    HOSTED_TOOLS,
    decode_tools,
    encode_tools,
    include_hosted_results,
)
from toolwire.protocols.openai_responses.wire import (
    CONSTRAINT_FAMILY,
    ECHO_FAMILY,
    FAMILY,
    SHARED_FAMILY,
    ReasoningItem,
    RequestShape,
)
from toolwire.protocols.vendors.openai import (
    REPRESENTED_USER,
    add_cache_key,
    decode_end_user,
    remove_unsupported_sampling,
)

FAMILIES = (FAMILY, SHARED_FAMILY, CONSTRAINT_FAMILY, ECHO_FAMILY)
ID_AND_NAME_RULES = IdAndNameRules(
    id_pattern=re.compile(r".+", re.DOTALL),
    id_limit=64,
    names=NameRules(re.compile(r"[a-zA-Z0-9_-]+"), 64),
    freeform=True,
)
_FUNCTION_RULES = replace(ID_AND_NAME_RULES, freeform=False)
WIRE_NAMES = {
    "Request.messages": "/input",
    "Request.system": "/instructions",
    "Request.sampling": "",
    "Request.thinking": "",
    "Request.output": "",
    "Request.continuation": "",
    "Request.end_user": "/user",
    "Request.tier": "/service_tier",
    "Request.labels": "/metadata",
    "Sampling.max_tokens": "/max_output_tokens",
    "Thinking.effort": "/reasoning/effort",
    "Thinking.visibility": "/reasoning/summary",
    "Thinking.summary": "/reasoning/summary",
    "OutputFormat.kind": "/text/format/type",
    "OutputFormat.schema": "/text/format/schema",
    "OutputFormat.name": "/text/format/name",
    "OutputFormat.description": "/text/format/description",
    "OutputFormat.strict": "/text/format/strict",
    "OutputFormat.verbosity": "/text/verbosity",
    "Continuation.id": "/previous_response_id",
    "ToolChoice.mode": "",
    "ToolChoice.names": "",
    "ToolChoice.required": "/mode",
    "ToolChoice.parallel": "//parallel_tool_calls",
    "McpServer.name": "/server_label",
    "McpServer.url": "/server_url",
    "McpServer.description": "/server_description",
    "McpServer.allowed": "/allowed_tools",
    "FunctionTool.defer": "/defer_loading",
    "FunctionTool.asynchronous": "/async",
    "FreeformTool.defer": "/defer_loading",
    "FreeformTool.asynchronous": "/async",
    "FreeformTool.grammar": "/format",
    "Message.parts": "/content",
    "Text.cache": "/prompt_cache_breakpoint",
    "Media.cache": "/prompt_cache_breakpoint",
    "Media.source": "/image_url",
    "Media.media_type": "/image_url",
    "Media.name": "/filename",
    "Citation.start": "/start_index",
    "Citation.end": "/end_index",
    "Refusal.text": "/refusal",
    "Computer.width": "/display_width",
    "Computer.height": "/display_height",
    "ToolCall.id": "/call_id",
    "ToolCall.asynchronous": "/async",
    "ToolResult.content": "/output",
    "ToolResult.status": "/output",
    "Caller.kind": "/type",
    "Caller.id": "/caller_id",
    "ToolChange.add": "/tools",
    "SettingChange.thinking": "",
    "SettingChange.output": "",
    "Response.candidates": "",
    "Response.created": "/created_at",
    "Response.continuation": "/conversation",
    "Candidate.messages": "/output",
    "Candidate.stop": "",
    "Stop.reason": "/status",
    "Stop.raw": "/status",
    "Usage.cache_read": "/input_tokens_details/cached_tokens",
    "Usage.cache_write": "/input_tokens_details/cache_write_tokens",
    "Usage.reasoning": "/output_tokens_details/reasoning_tokens",
    "Usage.total": "/total_tokens",
    "Usage.searches": "//tool_usage/web_search/num_requests",
    "ApiError.message": "/error/message",
    "ApiError.raw": "/error/type",
    "ApiError.code": "/error/code",
    "ApiError.param": "/error/param",
}

_SHARED_FIELDS = (
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "moderation",
    "safety_identifier",
)
_OBFUSCATION = "stream_options/include_obfuscation"
_INCLUDE_FAMILY = FAMILY + ":included"
_LOGPROBS = Raw(msgspec.json.encode(LOGPROBS))
_INPUT_STRING = "openai-responses:input:string"
_SAME_ROLE_PROTOCOLS = ("openai-chat", "openrouter")
_INPUT_ABSENT = "openai-responses:input:absent"
_INSTRUCTIONS_LIST = "openai-responses:instructions:list"
SERVICE_TIERS = ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")

_read_request = Reader[RequestShape](RequestShape, FAMILY).read

# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    """Decode a request body; a bare array is taken as `input`."""
    # Examples in the documentation often show only the array of items.
    shape = _read_request(b'{"input":%b}' % body if body.lstrip()[:1] == b"[" else body)
    tools = None if shape.tools is UNSET else decode_tools(shape.tools)
    item_decoder = ItemDecoder(tools)
    messages = _decode_input(shape, item_decoder)
    return decode_computer_use(replace(_decode_fields(shape, tools, route), messages=messages), COMPUTER_USE)


def _decode_fields(shape: RequestShape, tools: tuple[Tool, ...] | None, route: Route) -> Request:
    """Decode all fields except the messages."""
    instructions, extras_and_form = shape.instructions, dict(_decode_extras(shape))
    return Request(
        origin=FAMILY,
        model=unset_to_none(shape.model) if shape.model is not UNSET else route.model,
        system=(Text(text=instructions, at="/instructions"),) if isinstance(instructions, str) else None,
        tools=tools,
        tool_choice=decode_choice(shape.tool_choice, parallel=unset_to_none(shape.parallel_tool_calls)),
        sampling=decode_sampling(shape),
        thinking=decode_thinking(shape.reasoning),
        output=decode_output(shape.text),
        continuation=decode_continuation(shape),
        stream=unset_to_none(shape.stream),
        end_user=decode_end_user(unset_to_none(shape.user), extras_and_form),
        tier=unset_to_none(shape.service_tier),
        labels=None if _is_null(shape.metadata) else unset_to_none(shape.metadata),
        **extras_and_form,
    )


def _decode_input(shape: RequestShape, item_decoder: ItemDecoder) -> tuple[Message, ...]:
    """Decode the items of `instructions` and `input` to messages."""
    messages: tuple[Message, ...] = ()
    if isinstance(shape.instructions, list):
        # Instructions as items precede the input; the echo of a stored prompt has this form.
        instructions = item_decoder.decode_all(shape.instructions, "/instructions")
        messages = tuple(
            replace(message, at=f"/instructions/{index}", wire_form=(*message.wire_form, _INSTRUCTIONS_LIST))
            for index, message in enumerate(instructions)
        )
    if isinstance(shape.input, str):
        text = Text(text=shape.input, at="/input")
        return (*messages, Message(role="user", parts=(text,), at="", wire_form=(_INPUT_STRING,)))
    if shape.input is UNSET:
        return messages
    items = item_decoder.decode_all(shape.input, "/input")
    if not messages:
        return items
    return (*messages, *(replace(message, at=f"/input/{index}") for index, message in enumerate(items)))


def _decode_extras(shape: RequestShape) -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments of a request."""
    extras_and_form = collect_extras(shape, FAMILY, *_form_tokens(shape))
    extras: dict[str, Raw] = dict(extras_and_form.get("extras", {}).get(FAMILY, {}))
    if isinstance(shape.tool_choice, str) and shape.tool_choice not in CHOICE_MODES:
        extras["tool_choice"] = Raw(msgspec.json.encode(shape.tool_choice))
    if shape.conversation is not UNSET and shape.previous_response_id is not UNSET:
        extras["conversation"] = Raw(msgspec.json.encode(shape.conversation))
    if not extras:
        return extras_and_form
    shared = {name: extras.pop(name) for name in _SHARED_FIELDS if name in extras}
    if "prompt_cache_options" in shared:
        shared["prompt_cache_options"] = _split_cache_options(shared["prompt_cache_options"], extras)
    shared |= _split_stream_options(extras)
    families = {FAMILY: extras} if extras else {}
    if include := included_fields(shape):
        families[_INCLUDE_FAMILY] = _unrepresented_includes(include)
        extras_and_form = {
            **extras_and_form,
            "wire_form": (*extras_and_form.get("wire_form", ()), f"{FAMILY}:canonical:include"),
        }
    return {**extras_and_form, "extras": {**families, SHARED_FAMILY: shared} if shared else families}


def _form_tokens(shape: RequestShape) -> list[str]:
    """Return the wire-form tokens that record how the client spelled absent, null and empty fields."""
    tokens = [_INPUT_ABSENT] if shape.input is UNSET else []
    if isinstance(shape.instructions, list):
        tokens.append(_INSTRUCTIONS_LIST)
    if _is_null(shape.metadata):
        tokens.append(f"{FAMILY}:null:metadata")
    return tokens


def _unrepresented_includes(include: list[Any]) -> dict[str, Raw]:
    """Return, by pointer, the elements of `include` that no canonical field represents.

    The same protocol restores the complete list; other protocols report these elements as losses.
    """
    elements = {f"include/{index}": Raw(msgspec.json.encode(name)) for index, name in enumerate(include)}
    return {pointer: name for pointer, name in elements.items() if name != _LOGPROBS}


def _split_cache_options(raw: Raw, extras: dict[str, Raw]) -> Raw:
    """Return the cache options that both OpenAI protocols have; the others are moved to `extras`."""
    if bytes(raw)[:1] != b"{":
        return raw
    options = msgspec.json.decode(raw, type=dict[str, Raw])
    unshared = {name: value for name, value in options.items() if name not in ("mode", "ttl")}
    extras.update((f"prompt_cache_options/{escape_pointer(name)}", value) for name, value in unshared.items())
    shared = {name: value for name, value in options.items() if name not in unshared}
    return Raw(msgspec.json.encode(shared)) if unshared else raw


def _split_stream_options(extras: dict[str, Raw]) -> dict[str, Raw]:
    """Remove `include_obfuscation` from the stream options in `extras`; return it as an extra both OpenAI APIs have."""
    raw = extras.get("stream_options", Raw(b""))
    if bytes(raw)[:1] != b"{" or "include_obfuscation" not in (
        options := msgspec.json.decode(raw, type=dict[str, Raw])
    ):
        return {}
    del extras["stream_options"]
    extras.update((f"stream_options/{escape_pointer(name)}", value) for name, value in options.items())
    return {_OBFUSCATION: extras.pop(_OBFUSCATION)}


def _is_null(raw: Raw | UnsetType) -> bool:
    """Return whether the field is present and null."""
    return raw is not UNSET and bytes(raw) == b"null"


# ---- encode


def encode_request(request: Request, target: Target) -> EncodedBody:
    """Encode a request body and report losses."""
    target = resolve_target(target, request, gpt_info)
    request, plan = _plan_encoding(request, target)
    body: dict[str, Any] = {}
    if target.model is not None:
        body["model"] = target.model
    tools = _encode_tools(request, plan)
    _encode_system(request, body, plan)
    _encode_input(request, body, plan)
    if tools is not None:
        body["tools"] = tools
    body["tool_choice"] = encode_choice(request, plan, has_tools=bool(tools))
    body["parallel_tool_calls"] = encode_parallel(request, plan, has_tools=bool(tools))
    include_hosted_results(tools or (), body, plan)
    encode_sampling(request, body, plan)
    body["reasoning"] = encode_thinking(request.thinking, ("thinking",), plan)
    remove_unsupported_sampling(body, getattr(body["reasoning"], "effort", None), plan)
    body["text"] = encode_output(request.output, ("output",), plan)
    _require_json_word(request, body, plan)
    encode_continuation(request, body, plan)
    body["stream"] = none_to_unset(request.stream if target.stream is None else target.stream)
    _encode_end_user(request, body, plan)
    body["service_tier"] = _encode_tier(request, plan)
    body["metadata"] = none_to_unset(request.labels)
    if request.cache is not None:
        plan.report.dropped((), "cache", "the target caches automatically")
    body = {name: value for name, value in body.items() if value is not UNSET}
    if not plan.same_protocol:
        _disable_storage(body, plan)
    restore_extras(body, request, SHARED_FAMILY)
    for node in (request, request.thinking, request.output, request.continuation):
        restore_extras(body, node, FAMILY)
    if not plan.same_protocol:
        add_cache_key(body, target, plan.report)
    if not plan.same_protocol:
        plan.report.report_foreign_extras(request, FAMILIES)
    if not target.host.pass_through:
        fit_body(request, body, plan)
    return EncodedBody(body, plan.report, plan.tools.mapping, Route(path="/v1/responses"))


def _plan_encoding(request: Request, target: Target) -> tuple[Request, ItemPlan]:
    """Return the request with messages and tools that the host accepts, and the plan of its encoding."""
    adapts = not target.host.pass_through
    rules = _FUNCTION_RULES if adapts and not target.host.tools.freeform else ID_AND_NAME_RULES
    rules = with_host_names(rules, target.host)
    plan = ItemPlan(rules, LossReport(), target, same_protocol=request.origin == FAMILY)
    plan.has_moving_marks = request.origin in MOVING_MARKS
    if adapts:
        request = fit_messages(request, plan)
    computer_use = COMPUTER_USE if accepts_native("client", target.host) else FUNCTION_ADAPTER
    request = rename_tools(substitute_functions(request, plan, HOSTED_TOOLS), plan)
    return use_target_tool(request, plan, computer_use), plan


def _encode_tools(request: Request, plan: ItemPlan) -> list[Any] | None:
    """Encode the tools that the host accepts, None if there are none."""
    tools = encode_tools(request, plan) if plan.tools.freeform else encode_functions(request, plan)
    return tools if tools is None or plan.same_protocol else limit_functions(tools, plan)


def _encode_end_user(request: Request, body: dict[str, Any], plan: ItemPlan) -> None:
    """Write the end user into `body`, unless `safety_identifier` already names it."""
    if request.end_user is not None and REPRESENTED_USER[0] not in request.wire_form:
        body["user"] = request.end_user if plan.same_protocol else encode_user(request.end_user, plan.report)


def _disable_storage(body: dict[str, Any], plan: ItemPlan) -> None:
    """Set `store` to false if `body` has reasoning items, which the provider would otherwise look up by id."""
    fields = plan.target.host.fields
    if "store" in fields.refused or "store" in fields.ignored:
        return
    if "store" not in body and any(type(item) is ReasoningItem for item in body["input"]):
        body["store"] = False
        plan.report.added((), "", "/store", "encrypted reasoning requires store=false")


def _encode_system(request: Request, body: dict[str, Any], plan: ItemPlan) -> None:
    """Write the system texts into `body` as `instructions`, joined into one string."""
    system = request.system
    if system is None:
        return
    if plan.same_protocol:
        body["instructions"] = "\n\n".join(text.text for text in system)
        return
    for index, text in enumerate(system):
        if text.cache is not None:
            plan.report.dropped(("system", index), "cache", "the target has no cache marks on instructions")
        for number in range(len(text.annotations or ())):
            plan.report.dropped(("system", index, "annotations", number), "")
        if index:
            plan.report.approximated(("system", index), "", "joined with the preceding text", severity="info")
    if system:
        body["instructions"] = "\n\n".join(text.text for text in system)


def _encode_input(request: Request, body: dict[str, Any], plan: ItemPlan) -> None:
    """Write the messages into `body` as `input`."""
    if plan.same_protocol:
        _encode_same_protocol_input(request, body, plan)
        return
    _report_message_fields(request.messages, plan)
    turns = adapt_turns(assemble(request, plan.report), plan)
    if request.origin not in _SAME_ROLE_PROTOCOLS:
        leading = leading_system_count(request.messages)
        turns = turns[:leading] + [_as_developer(turn) for turn in turns[leading:]]
    body["input"] = _encode_turns(turns, plan)


def _encode_same_protocol_input(request: Request, body: dict[str, Any], plan: ItemPlan) -> None:
    """Write the `input` of a client of this API into `body`, and `instructions` that it sent as items."""
    if _INSTRUCTIONS_LIST in request.wire_form:
        instructions = without_input(request).messages
        body["instructions"] = _encode_turns(one_turn_per_message(instructions), plan)
    turns = [
        turn
        for turn in one_turn_per_message(request.messages)
        if turn.message is None or _INSTRUCTIONS_LIST not in turn.message.wire_form
    ]
    if len(turns) == 1 and (text := _plain_input(turns[0].message)) is not None:
        body["input"] = text
    elif turns or _INPUT_ABSENT not in request.wire_form:
        body["input"] = _encode_turns(turns, plan)


def _report_message_fields(messages: tuple[Message, ...], plan: ItemPlan) -> None:
    """Report as losses names, ids and expiry of messages, which input items lack."""
    for index, message in enumerate(messages):
        if message.name is not None or message.id is not None or message.clear_at is not None:
            plan.report.dropped_fields(("messages", index), message, "name", "id", "clear_at")


def _encode_turns(turns: list[Turn], plan: ItemPlan) -> list[Any]:
    """Encode several turns as items."""
    return [item for turn in turns for item in encode_turn(turn, plan)]


def without_input(request: Request) -> Request:
    """Return the request without its input; `instructions` that came as items stay."""
    return replace(
        request, messages=tuple([message for message in request.messages if _INSTRUCTIONS_LIST in message.wire_form])
    )


def _plain_input(message: Message | None) -> str | None:
    """Return the text of a message that the client sent as an `input` string; None if it has changed since."""
    if message is None or _INPUT_STRING not in message.wire_form or len(message.parts) != 1:
        return None
    part = message.parts[0]
    return part.text if isinstance(part, Text) and not part.extras and part.cache is None else None


def _require_json_word(request: Request, body: dict[str, Any], plan: ItemPlan) -> None:
    """Add instructions if the input does not mention JSON, which the provider requires for `json_object`."""
    if plan.same_protocol or request.output is None or request.output.kind != "json":
        return
    instructions, items = body.get("instructions"), body.get("input")
    texts = [text for text in (instructions, items) if isinstance(text, str)]
    for item in msgspec.json.decode(msgspec.json.encode(items)) if isinstance(items, list) else ():
        content = item.get("content")
        parts = content if isinstance(content, list) else []
        texts += [str(part.get("text")) for part in parts if isinstance(part, dict)]
        texts += [text for text in (content, item.get("output")) if isinstance(text, str)]
    if any("json" in text.lower() for text in texts):
        return
    body["instructions"] = "\n\n".join([text for text in (instructions, _JSON_INSTRUCTIONS) if isinstance(text, str)])
    plan.report.added((), "", "/instructions", plan.target.host.rejects("JSON output unless the prompt mentions JSON"))


_JSON_INSTRUCTIONS = "Respond with JSON only, without any other text."


def _as_developer(turn: Turn) -> Turn:
    """Return a turn of system text within the conversation as a developer turn."""
    return Turn("developer", turn.located_parts, turn.message, turn.path) if turn.role == "system" else turn


def encode_turn(turn: Turn, plan: ItemPlan) -> list[Any]:
    """Encode one turn as items; a message without optional fields takes the fast path."""
    message = turn.message
    if message is None:
        return encode_items(turn.parts, plan, Message(role=turn.role, parts=()))
    if plan.same_protocol:
        if plan.adapts and lacks_required_text(turn, plan):
            return []
        item = encode_fast_same_protocol(message, plan) if plan.tools.freeform else None
        return encode_items(turn.parts, plan, message) if item is None else [item]
    if turn.located_parts is None and (items := encode_fast_foreign(message.parts, turn.role, plan)) is not None:
        return items
    return encode_items(turn.parts, plan, Message(role=turn.role, parts=(), phase=message.phase))


def _encode_tier(request: Request, plan: ItemPlan) -> Any:
    """Return the service tier; UNSET if the target has no such tier."""
    tier = request.tier
    if tier is None or plan.same_protocol or tier in SERVICE_TIERS:
        return none_to_unset(tier)
    if tier == "standard_only":
        plan.report.approximated((), "tier", "standard_only sent as default")
        return "default"
    plan.report.dropped((), "tier", f"the target has no service tier {tier}")
    return UNSET


_COUNTED_FIELDS = frozenset(
    (
        *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning"),
        *("conversation", "previous_response_id", "truncation", "personality"),
    )
)


class CountResponse(Struct):
    """The response of `/v1/responses/input_tokens`."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


TOKEN_COUNT_API = TokenCountApi(
    count_path=lambda path: f"{path}/input_tokens",
    wrap_request=lambda body, _: select_fields(body, _COUNTED_FIELDS),
    unwrap_request=lambda body: body,
    encode_count=CountResponse,
    decode_count=lambda body: msgspec.json.decode(body, type=CountResponse).input_tokens,
)
