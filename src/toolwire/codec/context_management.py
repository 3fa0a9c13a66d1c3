"""Context management that a client asks its provider for: clearing old tool results and thinking, and compaction."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from toolwire.canonical.content import OpaquePart
from toolwire.canonical.events import CandidateEnd
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Usage


class ClearToolUses(Struct, frozen=True, kw_only=True):
    """Clear the results of old tool calls once the conversation is long."""

    unit: Literal["input_tokens", "tool_uses"] = "input_tokens"  # of the threshold
    threshold: int = 100_000  # clears only above it
    keep: int = 3  # the latest calls that stay
    least_tokens: int = 0  # clears nothing if it would clear fewer
    excluded_tools: frozenset[str] = frozenset()
    # also clears the arguments: of all tools, of none, or of these
    arguments: bool | frozenset[str] = False


class ClearThinking(Struct, frozen=True, kw_only=True):
    """Clear the thinking of all but the latest assistant turns."""

    keep: int | None = 1  # turns with thinking; None: all


class Compact(Struct, frozen=True, kw_only=True):
    """Replace the conversation by a summary."""

    threshold: int | None = None  # in input tokens; None: at once
    instructions: str | None = None  # of the client, in place of the prompt or in addition to it
    replaces_prompt: bool = False
    stops: bool = False  # the response is the summary, without an answer


Edit = ClearToolUses | ClearThinking | Compact


class ContextPlan(Struct, frozen=True, kw_only=True):
    """The edits that a request asks for, in order."""

    edits: tuple[Edit, ...]
    members: tuple[str, ...]  # of the request that ask for them


class AppliedEdit(Struct, frozen=True, kw_only=True):
    """The result of one clearing edit."""

    edit: ClearToolUses | ClearThinking
    cleared: int  # tool uses, or turns with thinking
    tokens: int


class Compaction(Struct, frozen=True, kw_only=True):
    """A summary that replaces a conversation, with the tokens that it took."""

    summary: str
    usage: Usage
    part: OpaquePart  # in the form of the client's protocol


class ContextManagementApi(Struct, frozen=True, kw_only=True):
    """The functions and facts of a protocol for context management."""

    # returns the features that a provider needs for what a request asks for; None if it asks for nothing
    find_features: Callable[[Request], tuple[str, ...] | None]
    # reads what a request asks for; raises `DecodeError` for invalid values
    read_plan: Callable[[Request], ContextPlan]
    # returns the request without the members that ask for it
    without_plan: Callable[[Request], Request]
    # encodes a summary, with its envelope, as the part that clients echo
    encode_summary: Callable[[str, str | None], OpaquePart]
    # returns envelope and readable text of such a part; each may be missing
    read_summary: Callable[[OpaquePart], tuple[str | None, str | None]]
    # returns the response to the request of this model that has only the compaction
    compaction_response: Callable[[Compaction, str], Response]
    # returns the usage of a response that follows a compaction
    merge_usage: Callable[[Compaction, Usage], Usage]
    # returns the end of a response with the applied edits noted, where the protocol reports them
    report_edits: Callable[[CandidateEnd, tuple[AppliedEdit, ...]], CandidateEnd]
    has_plain_summary: bool  # clients can read the summary; its envelope only marks it as the gateway's
    usage_includes_compaction: bool  # otherwise it is listed apart
    keeps_user_messages: bool  # user messages before a compaction stay in the conversation
    compact_path: str | None = None  # an endpoint that only compacts
    # returns the body of its response: kept messages, then the compaction; `int` is the time
    encode_compacted: Callable[[Request, Compaction, int], bytes] | None = None
