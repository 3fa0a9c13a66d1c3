"""A request to a model."""

from typing import Literal

from toolwire.canonical.content import Message, Text
from toolwire.canonical.node import Node, Raw
from toolwire.canonical.tools import CacheMark, OutputFormat, Sampling, Thinking, Tool, ToolChoice


class Continuation(Node, frozen=True):
    """Conversation state that the provider holds or should hold, such as `previous_response_id`."""

    kind: Literal["response", "conversation", "thread", "interaction", "cache"] | None = None
    id: str | None = None
    store: bool | None = None
    background: bool | None = None


class Request(Node, frozen=True):
    """A request to a model, in any protocol."""

    origin: str  # the source protocol; encoding to it again preserves order and grouping
    model: str | None = None
    messages: tuple[Message, ...] = ()
    system: tuple[Text, ...] | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: ToolChoice | None = None
    sampling: Sampling | None = None
    thinking: Thinking | None = None
    output: OutputFormat | None = None
    continuation: Continuation | None = None
    stream: bool | None = None
    include_usage: bool | None = None
    end_user: str | None = None
    tier: str | None = None
    labels: Raw | None = None
    cache: CacheMark | None = None
    continued: bool = False  # the last message is the start of the response, which the model continues (prefill)
