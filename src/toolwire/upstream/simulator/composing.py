"""How a provider says it: a reply as its answer, with its kinds of ids and proofs, its limits and counts."""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Reasoning, ReasoningText, Text, ToolCall
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.codec.hosted import SEARCH

from .brain import Call, Reply
from .dialects import DIALECTS, call_prefix, issuer_of, shows, signs_calls
from .proofs import Proofs, item_id, shown
from .reading import is_client_search
from .screens import screen_calls

_LETTERS_PER_TOKEN = 4


class Composer:
    """Composes answers to one request. All its ids come from a digest of the conversation."""

    def __init__(self, request: Request, protocol: str, proofs: Proofs) -> None:
        self._request = request
        self._protocol = protocol
        self._dialect = DIALECTS[protocol]
        self._issuer = issuer_of(protocol, request.model)
        self._proofs = proofs
        self._searches = any(is_client_search(tool) for tool in request.tools or ())
        said = msgspec.json.encode((request.model, request.messages, request.tools, request.tool_choice))
        self._nonce = hashlib.blake2s(said, digest_size=12).hexdigest()

    def response(self, reply: Reply) -> Response:
        sampling, held = self._request.sampling, self._request.continuation
        count = 1 if sampling is None or sampling.n is None else max(1, sampling.n)
        candidates = [self._candidate(index, reply) for index in range(count)]
        unnamed = self._protocol == "gemini-interactions" and held is not None and held.store is False
        prefix = self._dialect.answer_id
        return Response(
            origin="",
            id=None if prefix is None or unnamed else prefix + self._nonce,
            model=self._request.model,
            candidates=tuple(candidates),
            usage=_usage(self._request, candidates, _tokens(len(reply.thinking or "")) * count),
            error=reply.error,
        )

    def _candidate(self, index: int, reply: Reply) -> Candidate:
        parts: list[Part] = []
        if reply.thinking is not None and (thought := self._thought(reply.thinking)) is not None:
            parts.append(thought)
        if reply.text is not None:
            parts.append(Text(text=reply.text))
        thinking = reply.thinking is not None
        parts += [self._call(call, index, number, thinking=thinking) for number, call in enumerate(reply.calls)]
        if reply.actions:
            acting = screen_calls(self._request, self._protocol, reply.actions, reply.checks)
            first = len(reply.calls)
            parts += [self._named(call, index, first + place, thinking=thinking) for place, call in enumerate(acting)]
        parts, stop = _limited(parts, self._request)
        if stop is None:
            stop = Stop(reason=reply.stop or ("tool_use" if reply.calls or reply.actions else "end_turn"))
        return Candidate(index=index, messages=(Message(role="assistant", parts=tuple(parts)),), stop=stop)

    def _thought(self, text: str) -> Reasoning | None:
        block = ReasoningText(kind="summary" if self._dialect.discreet else "full", text=text)
        said = (block,) if shows(self._protocol, self._request) else ()
        if self._dialect.proof != "reasoning":
            return Reasoning(content=said) if said else None
        part = Reasoning(content=said, hidden=None if said else "omitted")
        # Only Anthropic's signature binds a text: what the others prove is inside, or is not the text.
        bound = shown(part) if self._issuer == "anthropic" else ""
        name = item_id(self._nonce) if self._issuer == "openai" else None
        return replace(part, seal=self._proofs.seal(self._issuer, self._nonce, bound), id=name)

    def _call(self, call: Call, candidate: int, number: int, *, thinking: bool) -> ToolCall:
        made = ToolCall(
            id=None,
            name=call.name,
            namespace=call.namespace,
            arguments=call.arguments,
            shape="freeform" if call.freeform else "json",
            native=f"{SEARCH}_call" if call.name == SEARCH and self._searches else None,
        )
        return self._named(made, candidate, number, thinking=thinking)

    def _named(self, call: ToolCall, candidate: int, number: int, *, thinking: bool) -> ToolCall:
        """The call with the id and the proof that the provider gives it."""
        prefix = call_prefix(self._protocol, self._request.model)
        id = None
        if prefix is not None:
            id = self._proofs.call_id(prefix, self._nonce, candidate * 256 + number, thought=thinking)
        thought = thinking or signs_calls(self._request.model)
        signed = self._dialect.proof == "call" and number == 0 and thought
        seal = self._proofs.seal(self._issuer, self._nonce, call.name) if signed else None
        return replace(call, id=id, seal=seal)


def _limited(parts: list[Part], request: Request) -> tuple[list[Part], Stop | None]:
    """The parts up to a stop sequence or the limit of tokens, and which of them was met. A call is never cut in two."""
    sampling = request.sampling
    met: Stop | None = None
    for place, part in enumerate(parts):
        if isinstance(part, Text) and (found := _first_stop(part.text, sampling.stop if sampling else None)):
            at, sequence = found
            parts, met = [*parts[:place], Text(text=part.text[:at])], Stop(reason="stop_sequence", sequence=sequence)
            break
    if sampling is None or sampling.max_tokens is None:
        return parts, met
    left = sampling.max_tokens * _LETTERS_PER_TOKEN
    kept: list[Part] = []
    for part in parts:
        size = _size(part)
        if size > left:
            if isinstance(part, Text) and left:
                kept.append(Text(text=part.text[:left]))
            return kept, Stop(reason="max_tokens")
        kept.append(part)
        left -= size
    return kept, met


def _first_stop(text: str, sequences: Sequence[str] | None) -> tuple[int, str] | None:
    found = [(text.find(sequence), sequence) for sequence in sequences or () if sequence and sequence in text]
    return min(found, default=None)


def _size(part: Part) -> int:
    match part:
        case Text():
            return len(part.text)
        case ToolCall():
            return len(part.name) + len(part.arguments)
        case Reasoning():
            return len(shown(part))
        case _:
            return 0


def _usage(request: Request, candidates: list[Candidate], thought: int) -> Usage:
    """What is thought counts, whether or not it is shown."""
    taken = input_tokens(request)
    parts = [part for candidate in candidates for message in candidate.messages for part in message.parts]
    given = thought + sum(_tokens(_size(part)) for part in parts if not isinstance(part, Reasoning))
    total = taken + given
    return Usage(input_tokens=taken, output_tokens=given, cache_read=0, cache_write=0, reasoning=thought, total=total)


def input_tokens(request: Request) -> int:
    return _tokens(len(msgspec.json.encode((request.system, request.messages, request.tools))))


def _tokens(letters: int) -> int:
    return -(-letters // _LETTERS_PER_TOKEN)
