"""Actions of a script on a screen, in the form that the request declares: as its provider's model would call them.

How a provider says it: a reply as its answer, with its kinds of ids and proofs, its limits and counts.

An answer as it would arrive: events with every text in several pieces.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from toolwire.canonical.computer import ACTION_KINDS, Action, SafetyCheck
from toolwire.canonical.content import Message, Part, Reasoning, ReasoningText, Text, ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event, PartDelta, ResponseStart
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.canonical.tools import Computer, FunctionTool
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
from toolwire.codec.encoding.hosted_tools import TOOL_SEARCH
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.model import Reply, ReplyCall
from toolwire.upstream.simulator.prompt import is_client_tool_search
from toolwire.upstream.simulator.provider_traits import (
    PROVIDER_TRAITS,
    call_id_prefix,
    is_thinking_visible,
    signature_issuer,
    signs_calls,
)
from toolwire.upstream.simulator.signatures import SignatureKey, reasoning_item_id, visible_reasoning
from toolwire.upstream.simulator.validation import ProviderRejection

_NO_COMPUTER_TOOL = "The script drives a screen, and no tool of the request does."
_UNSUPPORTED_ACTION = "The script drives the screen in a way that the request's tool has no words for."


def build_computer_calls(
    request: Request, protocol: str, actions: tuple[Action, ...], checks: tuple[SafetyCheck, ...]
) -> list[ToolCall]:
    """The calls that tell these actions. They have no ids yet."""
    form, computers = _computer_adapter(request, protocol)
    watching = ScreenTracker(computers)
    for message in request.messages:
        for part in message.parts:
            watching.observe(part)
    for computer in computers:
        saying = ActionEncodingState(watching.size, watching.state.point)
        if (spoken := encode_actions(actions, computer, form, saying)) is not None:
            return [
                _build_computer_call(said, form, computer, () if number else checks)
                for number, said in enumerate(spoken)
            ]
    raise ProviderRejection(ApiError(kind="server", message=_UNSUPPORTED_ACTION))


def _computer_adapter(request: Request, protocol: str) -> tuple[ComputerUseAdapter, tuple[Computer, ...]]:
    form = PROTOCOLS[protocol].computer_use
    if form is not None and (computers := computers_of(request.tools)):
        return form, computers
    if any(isinstance(tool, FunctionTool) and tool.name == COMPUTER_FUNCTION_NAME for tool in request.tools or ()):
        return FUNCTION_ADAPTER, (Computer(dialect=COMPUTER_FUNCTION_NAME, kinds=ACTION_KINDS),)
    raise ProviderRejection(ApiError(kind="server", message=_NO_COMPUTER_TOOL))


def _build_computer_call(
    action: EncodedAction, adapter: ComputerUseAdapter, computer: Computer, checks: tuple[SafetyCheck, ...]
) -> ToolCall:
    return adapter.finish_call(
        ToolCall(id=None, name=action.name, arguments=encode_arguments(action)), computer, checks
    )


_CHARS_PER_TOKEN = 4


class ResponseBuilder:
    """Composes answers to one request. All its ids come from a digest of the conversation."""

    def __init__(self, request: Request, protocol: str, key: SignatureKey) -> None:
        self._request = request
        self._protocol = protocol
        self._traits = PROVIDER_TRAITS[protocol]
        self._issuer = signature_issuer(protocol, request.model)
        self._key = key
        self._has_client_search = any(is_client_tool_search(tool) for tool in request.tools or ())
        said = msgspec.json.encode((request.model, request.messages, request.tools, request.tool_choice))
        self._nonce = hashlib.blake2s(said, digest_size=12).hexdigest()

    def build(self, reply: Reply) -> Response:
        sampling, held = self._request.sampling, self._request.continuation
        count = 1 if sampling is None or sampling.n is None else max(1, sampling.n)
        candidates = [self._build_candidate(index, reply) for index in range(count)]
        unnamed = self._protocol == "gemini-interactions" and held is not None and held.store is False
        prefix = self._traits.response_id_prefix
        return Response(
            origin="",
            id=None if prefix is None or unnamed else prefix + self._nonce,
            model=self._request.model,
            candidates=tuple(candidates),
            usage=_count_usage(self._request, candidates, _token_count(len(reply.thinking or "")) * count),
            error=reply.error,
        )

    def _build_candidate(self, index: int, reply: Reply) -> Candidate:
        parts: list[Part] = []
        if reply.thinking is not None and (thought := self._build_reasoning(reply.thinking)) is not None:
            parts.append(thought)
        if reply.text is not None:
            parts.append(Text(text=reply.text))
        thinking = reply.thinking is not None
        parts += [
            self._build_call(call, index, number, after_thinking=thinking) for number, call in enumerate(reply.calls)
        ]
        if reply.actions:
            acting = build_computer_calls(self._request, self._protocol, reply.actions, reply.checks)
            first = len(reply.calls)
            parts += [
                self._sign_call(call, index, first + place, after_thinking=thinking)
                for place, call in enumerate(acting)
            ]
        parts, stop = _apply_limits(parts, self._request)
        if stop is None:
            stop = Stop(reason=reply.stop or ("tool_use" if reply.calls or reply.actions else "end_turn"))
        return Candidate(index=index, messages=(Message(role="assistant", parts=tuple(parts)),), stop=stop)

    def _build_reasoning(self, text: str) -> Reasoning | None:
        block = ReasoningText(kind="summary" if self._traits.hides_thinking else "full", text=text)
        said = (block,) if is_thinking_visible(self._protocol, self._request) else ()
        if self._traits.signed_part != "reasoning":
            return Reasoning(content=said) if said else None
        part = Reasoning(content=said, hidden=None if said else "omitted")
        # Only Anthropic's signature binds a text: what the others prove is inside, or is not the text.
        bound = visible_reasoning(part) if self._issuer == "anthropic" else ""
        name = reasoning_item_id(self._nonce) if self._issuer == "openai" else None
        return replace(part, signature=self._key.sign(self._issuer, self._nonce, bound), id=name)

    def _build_call(self, call: ReplyCall, candidate: int, number: int, *, after_thinking: bool) -> ToolCall:
        made = ToolCall(
            id=None,
            name=call.name,
            namespace=call.namespace,
            arguments=call.arguments,
            shape="freeform" if call.freeform else "json",
            native=f"{TOOL_SEARCH}_call" if call.name == TOOL_SEARCH and self._has_client_search else None,
        )
        return self._sign_call(made, candidate, number, after_thinking=after_thinking)

    def _sign_call(self, call: ToolCall, candidate: int, number: int, *, after_thinking: bool) -> ToolCall:
        """The call with the id and the proof that the provider gives it."""
        prefix = call_id_prefix(self._protocol, self._request.model)
        id = None
        if prefix is not None:
            id = self._key.make_call_id(prefix, self._nonce, candidate * 256 + number, after_thinking=after_thinking)
        thought = after_thinking or signs_calls(self._request.model)
        signed = self._traits.signed_part == "call" and number == 0 and thought
        seal = self._key.sign(self._issuer, self._nonce, call.name) if signed else None
        return replace(call, id=id, signature=seal)


def _apply_limits(parts: list[Part], request: Request) -> tuple[list[Part], Stop | None]:
    """The parts up to a stop sequence or the limit of tokens, and which of them was met. A call is never cut in two."""
    sampling = request.sampling
    met: Stop | None = None
    for place, part in enumerate(parts):
        if isinstance(part, Text) and (found := _find_stop_sequence(part.text, sampling.stop if sampling else None)):
            at, sequence = found
            parts, met = [*parts[:place], Text(text=part.text[:at])], Stop(reason="stop_sequence", sequence=sequence)
            break
    if sampling is None or sampling.max_tokens is None:
        return parts, met
    left = sampling.max_tokens * _CHARS_PER_TOKEN
    kept: list[Part] = []
    for part in parts:
        size = _char_count(part)
        if size > left:
            if isinstance(part, Text) and left:
                kept.append(Text(text=part.text[:left]))
            return kept, Stop(reason="max_tokens")
        kept.append(part)
        left -= size
    return kept, met


def _find_stop_sequence(text: str, sequences: Sequence[str] | None) -> tuple[int, str] | None:
    found = [(text.find(sequence), sequence) for sequence in sequences or () if sequence and sequence in text]
    return min(found, default=None)


def _char_count(part: Part) -> int:
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
    """What is thought counts, whether or not it is shown."""
    taken = count_input_tokens(request)
    parts = [part for candidate in candidates for message in candidate.messages for part in message.parts]
    given = thinking_tokens + sum(_token_count(_char_count(part)) for part in parts if not isinstance(part, Reasoning))
    total = taken + given
    return Usage(
        input_tokens=taken, output_tokens=given, cache_read=0, cache_write=0, reasoning=thinking_tokens, total=total
    )


def count_input_tokens(request: Request) -> int:
    return _token_count(len(msgspec.json.encode((request.system, request.messages, request.tools))))


def _token_count(characters: int) -> int:
    return -(-characters // _CHARS_PER_TOKEN)


_WORD = re.compile(r"\s*\S{1,12}(?:\s+$)?|\s+$")
_MAX_CHUNKS = 400


def chunk_response(response: Response) -> Iterator[list[Event]]:
    """The events in the groups that are sent together: what opens and closes a part goes with its neighbours."""
    group: list[Event] = []
    for event in unfold(response):
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


def _without_final_usage(event: ResponseStart) -> ResponseStart:
    """The start of a stream, which can't know yet how long it will be."""
    usage = event.usage
    return event if usage is None else replace(event, usage=Usage(input_tokens=usage.input_tokens, output_tokens=1))


def _split_text(text: str) -> list[str]:
    """A text word by word; a very long one in larger pieces, so that no stream is made of thousands of frames."""
    words = _WORD.findall(text)
    if len(words) <= _MAX_CHUNKS:
        return words
    size = -(-len(text) // _MAX_CHUNKS)
    return [text[start : start + size] for start in range(0, len(text), size)]
