"""Responses in a provider's style: computer calls, ids, signatures, limits, usage, and the chunks of a stream."""

import hashlib
import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from toolwire.canonical.computer import ACTION_KINDS, Action, SafetyCheck
from toolwire.canonical.content import Citation, Message, Part, Reasoning, ReasoningText, Text, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart, ResponseStart
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.canonical.tools import Computer, FunctionTool, NativeTool
from toolwire.codec.encoding.computer import (
    COMPUTER_FUNCTION_NAME,
    FUNCTION_ADAPTER,
    ActionEncodingState,
    ComputerUseAdapter,
    EncodedAction,
    ScreenTracker,
    computers_of,
    encode_actions,
    encode_arguments,
)
from toolwire.codec.models.gemini import signs_calls
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.hosted_tools import HostedCall, describe_calls, hosted_parts, hosted_tools_of
from toolwire.upstream.simulator.model import Reply, ReplyCall
from toolwire.upstream.simulator.provider_traits import (
    PROVIDER_TRAITS,
    call_id_prefix,
    is_thinking_visible,
    signature_issuer,
)
from toolwire.upstream.simulator.validation import ProviderRejection, SignatureKey, reasoning_item_id, visible_reasoning

_NO_COMPUTER_TOOL = "The script has computer actions, but the request has no computer tool."
_UNSUPPORTED_ACTION = "The script has computer actions that the request's computer tool does not support."


def build_computer_calls(
    request: Request, protocol: str, actions: tuple[Action, ...], checks: tuple[SafetyCheck, ...]
) -> list[ToolCall]:
    """Encode computer actions as calls of the tool that the request declares. The calls have no ids yet."""
    adapter, computers = _computer_adapter(request, protocol)
    tracker = ScreenTracker(computers)
    for message in request.messages:
        for part in message.parts:
            tracker.observe(part)
    for computer in computers:
        state = ActionEncodingState(tracker.size, tracker.state.point)
        if (encoded_actions := encode_actions(actions, computer, adapter, state)) is not None:
            return [
                _build_computer_call(action, adapter, computer, () if number else checks)
                for number, action in enumerate(encoded_actions)
            ]
    raise ProviderRejection(ApiError(kind="server", message=_UNSUPPORTED_ACTION))


def _computer_adapter(request: Request, protocol: str) -> tuple[ComputerUseAdapter, tuple[Computer, ...]]:
    """Return the adapter for the request's computer tool, native or a function, and the declared computers."""
    adapter = PROTOCOLS[protocol].computer_use
    if adapter is not None and (computers := computers_of(request.tools)):
        return adapter, computers
    if any(isinstance(tool, FunctionTool) and tool.name == COMPUTER_FUNCTION_NAME for tool in request.tools or ()):
        return FUNCTION_ADAPTER, (Computer(dialect=COMPUTER_FUNCTION_NAME, kinds=ACTION_KINDS),)
    raise ProviderRejection(ApiError(kind="server", message=_NO_COMPUTER_TOOL))


def _build_computer_call(
    action: EncodedAction, adapter: ComputerUseAdapter, computer: Computer, checks: tuple[SafetyCheck, ...]
) -> ToolCall:
    """Build the call for one encoded action."""
    return adapter.finish_call(
        ToolCall(id=None, name=action.name, arguments=encode_arguments(action)), computer, checks
    )


_CHARS_PER_TOKEN = 4


class ResponseBuilder:
    """Builds responses to one request. All ids derive from a digest of the conversation."""

    def __init__(self, request: Request, protocol: str, key: SignatureKey) -> None:
        self._request = request
        self._protocol = protocol
        self._traits = PROVIDER_TRAITS[protocol]
        self._issuer = signature_issuer(protocol, request.model)
        self._key = key
        self._native_names = {
            tool.kind
            for tool in request.tools or ()
            if isinstance(tool, NativeTool) and tool.protocol == "openai-responses" and tool.executor == "client"
        }
        conversation = msgspec.json.encode((request.model, request.messages, request.tools, request.tool_choice))
        self._nonce = hashlib.blake2s(conversation, digest_size=12).hexdigest()

    def build(self, reply: Reply) -> Response:
        """Build the response for a reply."""
        sampling, continuation = self._request.sampling, self._request.continuation
        count = 1 if sampling is None or sampling.n is None else max(1, sampling.n)
        candidates = [self._build_candidate(index, reply) for index in range(count)]
        is_unstored = (
            self._protocol == "gemini-interactions" and continuation is not None and continuation.store is False
        )
        prefix = self._traits.response_id_prefix
        return Response(
            origin="",
            id=None if prefix is None or is_unstored else prefix + self._nonce,
            model=self._request.model,
            candidates=tuple(candidates),
            usage=_count_usage(self._request, candidates, _token_count(len(reply.thinking or "")) * count),
            error=reply.error,
        )

    def _build_candidate(self, index: int, reply: Reply) -> Candidate:
        """Build one candidate: thinking, text and calls, within the limits of the request."""
        parts: list[Part] = []
        if reply.thinking is not None and (reasoning := self._build_reasoning(reply.thinking)) is not None:
            parts.append(reasoning)
        hosted, calls = self._split_calls(reply.calls)
        if hosted:
            parts += hosted_parts(hosted, self._request, self._protocol, self._nonce)
            parts += [] if reply.stop == "paused" else [describe_calls(hosted)]
        if reply.text is not None:
            parts.append(Text(text=reply.text))
        thinking = reply.thinking is not None
        parts += [self._build_call(call, index, number, after_thinking=thinking) for number, call in enumerate(calls)]
        if reply.actions:
            computer_calls = build_computer_calls(self._request, self._protocol, reply.actions, reply.checks)
            call_count = len(calls)
            parts += [
                self._sign_call(call, index, call_count + offset, after_thinking=thinking)
                for offset, call in enumerate(computer_calls)
            ]
        parts, stop = _apply_limits(parts, self._request)
        if stop is None:
            stop = Stop(reason=reply.stop or ("tool_use" if calls or reply.actions else "end_turn"))
        return Candidate(index=index, messages=(Message(role="assistant", parts=tuple(parts)),), stop=stop)

    def _split_calls(self, calls: tuple[ReplyCall, ...]) -> tuple[list[HostedCall], list[ReplyCall]]:
        """Separate the calls of hosted tools that the request declares from those that the client runs."""
        hosted = hosted_tools_of(self._request)
        is_hosted = [call.name in hosted and call.namespace is None for call in calls]
        return (
            [HostedCall(hosted[call.name], call.arguments) for call, yes in zip(calls, is_hosted, strict=True) if yes],
            [call for call, yes in zip(calls, is_hosted, strict=True) if not yes],
        )

    def _build_reasoning(self, text: str) -> Reasoning | None:
        """Build the signed reasoning part; None if it would be empty."""
        block = ReasoningText(kind="summary" if self._traits.hides_thinking else "full", text=text)
        content = (block,) if is_thinking_visible(self._protocol, self._request) else ()
        if self._traits.signed_part != "reasoning":
            return Reasoning(content=content) if content else None
        part = Reasoning(content=content, hidden=None if content else "omitted")
        # Only Anthropic's signature covers the visible text; the others cover encrypted content or nothing visible.
        bound_text = visible_reasoning(part) if self._issuer == "anthropic" else ""
        item_id = reasoning_item_id(self._nonce) if self._issuer == "openai" else None
        return replace(part, signature=self._key.sign(self._issuer, self._nonce, bound_text), id=item_id)

    def _build_call(self, call: ReplyCall, candidate: int, number: int, *, after_thinking: bool) -> ToolCall:
        """Build a tool call with its id and signature."""
        unsigned = ToolCall(
            id=None,
            name=call.name,
            namespace=call.namespace,
            arguments=call.arguments,
            shape="freeform" if call.freeform else "json",
            native=f"{call.name}_call" if call.name in self._native_names else None,
        )
        return self._sign_call(unsigned, candidate, number, after_thinking=after_thinking)

    def _sign_call(self, call: ToolCall, candidate: int, number: int, *, after_thinking: bool) -> ToolCall:
        """Add the id and the signature that the provider gives a call."""
        prefix = call_id_prefix(self._protocol, self._request.model)
        id = None
        if prefix is not None:
            id = self._key.make_call_id(prefix, self._nonce, candidate * 256 + number, after_thinking=after_thinking)
        has_thinking = after_thinking or signs_calls(self._request.model or "")
        needs_signature = self._traits.signed_part == "call" and number == 0 and has_thinking
        signature = self._key.sign(self._issuer, self._nonce, call.name) if needs_signature else None
        return replace(call, id=id, signature=signature)


def _apply_limits(parts: list[Part], request: Request) -> tuple[list[Part], Stop | None]:
    """Cut the parts at a stop sequence or at `max_tokens`; also return which was met, or None.

    Calls are never split.
    """
    sampling = request.sampling
    stop: Stop | None = None
    for index, part in enumerate(parts):
        if isinstance(part, Text) and (match := _find_stop_sequence(part.text, sampling.stop if sampling else None)):
            position, sequence = match
            parts = [*parts[:index], Text(text=part.text[:position])]
            stop = Stop(reason="stop_sequence", sequence=sequence)
            break
    if sampling is None or sampling.max_tokens is None:
        return parts, stop
    remaining = sampling.max_tokens * _CHARS_PER_TOKEN
    fitting: list[Part] = []
    for part in parts:
        size = _char_count(part)
        if size > remaining:
            if isinstance(part, Text) and remaining:
                fitting.append(Text(text=part.text[:remaining]))
            return fitting, Stop(reason="max_tokens")
        fitting.append(part)
        remaining -= size
    return fitting, stop


def _find_stop_sequence(text: str, sequences: Sequence[str] | None) -> tuple[int, str] | None:
    """Return position and text of the first stop sequence in the text; None if there is none."""
    matches = [(text.find(sequence), sequence) for sequence in sequences or () if sequence and sequence in text]
    return min(matches, default=None)


def _char_count(part: Part) -> int:
    """Return the number of characters of a part that count as tokens."""
    match part:
        case Text():
            return len(part.text)
        case ToolCall():
            return len(part.name) + len(part.arguments)
        case Reasoning():
            return len(visible_reasoning(part))
        case _:
            return 0


def _count_usage(request: Request, candidates: list[Candidate], thinking_tokens: int) -> Usage:
    """Count the tokens. Thinking counts whether or not it is shown."""
    input_tokens = count_input_tokens(request)
    parts = [part for candidate in candidates for message in candidate.messages for part in message.parts]
    output_tokens = thinking_tokens + sum(
        _token_count(_char_count(part)) for part in parts if not isinstance(part, Reasoning)
    )
    total = input_tokens + output_tokens
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read=0,
        cache_write=0,
        reasoning=thinking_tokens,
        total=total,
    )


def count_input_tokens(request: Request) -> int:
    """Estimate the input tokens of a request."""
    return _token_count(len(msgspec.json.encode((request.system, request.messages, request.tools))))


def _token_count(characters: int) -> int:
    """Convert a number of characters to a number of tokens, rounded up."""
    return -(-characters // _CHARS_PER_TOKEN)


_WORD = re.compile(r"\s*\S{1,12}(?:\s+$)?|\s+$")
_MAX_CHUNKS = 400


def chunk_response(response: Response) -> Iterator[list[Event]]:
    """Split a response into groups of events that are sent together, with long texts in several deltas."""
    group: list[Event] = []
    for event in _with_citation_deltas(unfold(response)):
        if isinstance(event, ResponseStart):
            group.append(_without_final_usage(event))
        elif isinstance(event, PartDelta) and event.text:
            for text in _split_text(event.text):
                yield [*group, replace(event, text=text)]
                group = []
        else:
            group.append(event)
    if group:
        yield group


def _with_citation_deltas(events: Iterator[Event]) -> Iterator[Event]:
    """Yield the events with citations after the text that cites, as providers send them."""
    cited: dict[tuple[int, int], tuple[Citation, ...]] = {}
    for event in events:
        if isinstance(event, PartStart) and isinstance(event.part, Text) and event.part.annotations:
            cited[event.candidate, event.index] = event.part.annotations
            yield replace(event, part=replace(event.part, annotations=None))
            continue
        if isinstance(event, PartEnd):
            for citation in cited.pop((event.candidate, event.index), ()):
                yield PartDelta(index=event.index, candidate=event.candidate, annotation=citation)
        yield event


def _without_final_usage(event: ResponseStart) -> ResponseStart:
    """Return the start event without the final output tokens, which are not known yet in a real stream."""
    usage = event.usage
    return event if usage is None else replace(event, usage=Usage(input_tokens=usage.input_tokens, output_tokens=1))


def _split_text(text: str) -> list[str]:
    """Split a text into words, or a very long one into at most `_MAX_CHUNKS` chunks."""
    words = _WORD.findall(text)
    if len(words) <= _MAX_CHUNKS:
        return words
    size = -(-len(text) // _MAX_CHUNKS)
    return [text[start : start + size] for start in range(0, len(text), size)]
