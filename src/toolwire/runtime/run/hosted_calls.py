"""Calls that the provider runs during a response: their begin and end as events, and their records for the journal."""

import time
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Citation, HostedUse, OpaquePart, Part, Text, ToolCall, ToolResult
from toolwire.canonical.events import Event, PartDelta, PartDeltas, PartEnd, PartStart, ResponseStart
from toolwire.canonical.response import Response
from toolwire.canonical.tools import HostedKind
from toolwire.journal.redaction import Redactor
from toolwire.runtime.calls.executor import CallIntent, CallOutcome
from toolwire.runtime.calls.outputs import truncate_middle
from toolwire.runtime.policy import Policy
from toolwire.runtime.run.events import CallEnded, CallRecord, CallStarted, RunEvent
from toolwire.runtime.run.hooks import ProposedCall
from toolwire.runtime.run.state import ResponseIdentity
from toolwire.runtime.run.step_log import StepLog
from toolwire.runtime.tool import ToolCatalog, ToolOutput

_MAX_ARGUMENT_LENGTH = 2000
_MAX_SUMMARY_LENGTH = 500
_NOT_IN_POLICY = "allow: declared as a tool of the provider"


class _HostedCall(Struct, kw_only=True):
    """A call that the provider runs or ran."""

    id: str
    tool: str
    arguments: str
    started_at: float
    use: HostedUse | None = None
    is_proposed: bool = False
    """Whether the call was queued for the `before_tool` hooks."""


class HostedCallObserver:
    """Follows the provider's calls through the responses of a run. A result may come in a later response."""

    def __init__(self, step_log: StepLog, redactor: Redactor) -> None:
        self._step_log = step_log
        self._redactor = redactor
        self._open: dict[str, _HostedCall] = {}
        self._parts: dict[int, Part] = {}
        self._texts: dict[int, list[str]] = {}
        self._for_hooks: list[tuple[ProposedCall, ToolOutput | None]] = []
        self._count = 0
        self._is_shown = False  # the response shows a call, not only citations
        self._turn = 0
        self._catalog = ToolCatalog({})
        self._policy = Policy()
        self._response = ResponseIdentity()

    def start_turn(self, turn: int, catalog: ToolCatalog, policy: Policy, model: str) -> None:
        """Set the turn whose response is observed next, with the tools and the policy that hold in it."""
        self._turn, self._catalog, self._policy = turn, catalog, policy
        self._response = ResponseIdentity(requested_model=model)
        self._is_shown = False
        self._parts.clear()
        self._texts.clear()
        self._for_hooks.clear()

    def take_for_hooks(self) -> list[tuple[ProposedCall, ToolOutput | None]]:
        """Return the new calls for the hooks: with None for `before_tool`, with the output for `after_tool`."""
        calls, self._for_hooks = self._for_hooks, []
        return calls

    def observe(self, event: Event) -> RunEvent | None:
        """Return the begin or the end of a call that an event of the response reports; record its end as a step."""
        match event:
            case ResponseStart():
                self._response = replace(self._response, response_id=event.id or "", reported_model=event.model or "")
            case PartStart(candidate=0, index=index, part=part) if _is_hosted(part):
                self._parts[index], self._texts[index] = part, []
                return self._begin(part)
            case PartDelta(candidate=0, index=index) | PartDeltas(candidate=0, index=index) if index in self._texts:
                self._texts[index].append(event.text)
            case PartEnd(candidate=0, index=index) if index in self._parts:
                started, texts = self._parts.pop(index), self._texts.pop(index)
                return self._end(started if event.final is None else event.final, "".join(texts))
            case _:
                pass
        return None

    def end_turn(self, response: Response) -> list[RunEvent]:
        """Return the begin and the end of a search that the response does not show, but whose pages it cites.

        Chat Completions, OpenRouter and Gemini without functions show citations only.
        """
        if self._is_shown:
            return []
        provided = [name for name, tool in self._catalog.tools.items() if tool.locus == "provider"]
        kinds: list[HostedKind] = ["web_search", "web_fetch"]
        kind = next((kind for kind in kinds if kind in provided), None)
        pages = tuple(_cited_pages(response))
        if kind is None or not pages:
            return []
        call = self._open_call(None, kind, HostedUse(kind=kind))
        ended = self._close(call, HostedUse(kind=kind, pages=pages), "ok", "")
        return [CallStarted(call_id=call.id, tool=call.tool), ended]

    def _begin(self, part: Part) -> RunEvent | None:
        """Open the call that a part begins."""
        self._is_shown = True
        match part:
            case ToolCall(executor="server"):
                call = self._open_call(part.id, _tool_name(part.use, part.name), part.use)
            case OpaquePart(use=HostedUse() as use):
                call = self._open_call(use.id, use.kind, use)
            case _:
                return None
        return CallStarted(call_id=call.id, tool=call.tool)

    def _open_call(self, id: str | None, tool: str, use: HostedUse | None) -> _HostedCall:
        """Open a call; some providers give it no id."""
        self._count += 1
        call = _HostedCall(id=id or f"hosted_{self._count}", tool=tool, arguments="", started_at=time.time(), use=use)
        self._open[call.id] = call
        return call

    def _end(self, part: Part, text: str) -> RunEvent | None:
        """Complete the arguments of a call, or close it with its result and return its end."""
        match part:
            case ToolCall(executor="server"):
                call = self._find(part.id)
                if call is not None:
                    call.arguments, call.use = part.arguments or text, part.use
                    self._propose(call)
            case ToolResult(executor="server"):
                call = self._find(part.call_id)
                if call is not None:
                    return self._close(call, part.use, part.status, _readable_text(part))
            case OpaquePart(use=HostedUse() as use):
                call = self._find(use.id)
                if call is not None:
                    call.tool, call.use = use.kind, use  # a search that opens a page is a fetch
                    return self._close(call, use, "error" if use.failed else "ok", part.gist or "")
            case _:
                pass
        return None

    def _find(self, id: str | None) -> _HostedCall | None:
        """Return the open call with this id, or without one the call opened last."""
        if id is not None:
            return self._open.get(id)
        return next(reversed(self._open.values()), None)

    def _close(
        self, call: _HostedCall, use: HostedUse | None, status: Literal["ok", "error", "denied"], text: str
    ) -> CallEnded:
        """Close a call with its result, and record it."""
        del self._open[call.id]
        asked = call.use
        if asked is not None and use is not None and use is not asked:
            use = replace(asked, pages=use.pages, output=use.output, failed=use.failed)
        call.use = use or asked
        self._propose(call)
        summary = Text(text=_summarize(call.use, text))
        sources = () if call.use is None else call.use.pages
        output = ToolOutput(content=(summary,), is_error=status != "ok", sources=sources)
        self._for_hooks.append((_proposed_call(call), output))
        record = self._build_record(call, status, text)
        result = ToolResult(call_id=call.id, name=call.tool, status=status, executor="server", use=call.use)
        name = f"call/{self._turn}/{call.id}"
        intent = CallIntent(call.tool, msgspec.json.encode(record.arguments).decode())
        self._step_log.begin(name, msgspec.json.encode(intent))
        self._step_log.finish(name, msgspec.json.encode(CallOutcome(result=result, record=record)))
        return CallEnded(call_id=call.id, status=status, record=record)

    def _propose(self, call: _HostedCall) -> None:
        """Queue the call for the `before_tool` hooks, once."""
        if not call.is_proposed:
            call.is_proposed = True
            self._for_hooks.append((_proposed_call(call), None))

    def _build_record(self, call: _HostedCall, status: str, text: str) -> CallRecord:
        """Build the record of a call that ended with this text."""
        tool = self._catalog.tools.get(call.tool)
        decision = None if tool is None else self._policy.decide(tool, {})
        return CallRecord(
            tool=call.tool,
            call_id=call.id,
            arguments=self._redacted_arguments(call),
            approval=_NOT_IN_POLICY if decision is None else f"{decision.verdict}: {decision.reason}",
            start=call.started_at,
            end=time.time(),
            summary=self._redactor.redact_text(_summarize(call.use, text)[:_MAX_SUMMARY_LENGTH]),
            error="" if status == "ok" else "provider",
            source="provider",
            locus="provider",
            sources=() if call.use is None else call.use.pages,
            response=self._response.response_id,
            provider=self._response.requested_model,
            version=self._response.reported_model,
        )

    def _redacted_arguments(self, call: _HostedCall) -> Any:
        """Return the arguments for the record, without secrets, long texts truncated."""
        arguments = _arguments_of(call)
        if isinstance(arguments, str):
            return self._redact(arguments)
        return {name: self._redact(text) for name, text in arguments.items()}

    def _redact(self, text: str) -> str:
        """Redact and shorten one text."""
        return truncate_middle(self._redactor.redact_text(text), _MAX_ARGUMENT_LENGTH)


def _arguments_of(call: _HostedCall) -> dict[str, str] | str:
    """Return the arguments of a call by vendor-neutral names, or else the vendor's text."""
    use = call.use
    if use is None:
        return call.arguments
    arguments = {"query": "; ".join(use.queries), "url": "; ".join(use.urls)}
    arguments = {name: text for name, text in arguments.items() if text}
    return arguments if use.code is None else {**arguments, "code": use.code}


def _proposed_call(call: _HostedCall) -> ProposedCall:
    """Return a call as hooks see it."""
    return ProposedCall(id=call.id, tool=call.tool, arguments=_arguments_of(call), locus="provider")


def _cited_pages(response: Response) -> Iterator[Citation]:
    """Yield the pages that a response cites, each once."""
    cited: dict[str, Citation] = {}
    for message in response.candidates[0].messages if response.candidates else ():
        for part in message.parts:
            for citation in (part.annotations or ()) if isinstance(part, Text) else ():
                if citation.url is not None:
                    cited.setdefault(citation.url, Citation(url=citation.url, title=citation.title))
    yield from cited.values()


def _is_hosted(part: Part) -> bool:
    """Return whether a part is a call that the provider runs, its result, or both."""
    if isinstance(part, ToolCall | ToolResult):
        return part.executor == "server"
    return isinstance(part, OpaquePart) and part.use is not None


def _tool_name(use: HostedUse | None, name: str) -> str:
    """Return the vendor-neutral name of a hosted tool, or the vendor's."""
    return name if use is None else use.kind


def _readable_text(result: ToolResult) -> str:
    """Return the text of a result, as far as its vendor made it readable."""
    gists = [part.gist for part in result.content or () if isinstance(part, OpaquePart) and part.gist]
    return "\n".join(gists)


def _summarize(use: HostedUse | None, text: str) -> str:
    """Return the output of a program, the pages found, or the vendor's text."""
    if use is not None and use.output:
        text = use.output
    elif use is not None and use.pages:
        text = "\n".join(f"{page.title or ''} {page.url or ''}".strip() for page in use.pages)
    return text
