"""What is asked of a model."""

from typing import Literal

from toolwire.canonical.content import Message, Text
from toolwire.canonical.node import Node, Raw
from toolwire.canonical.tools import CacheMark, OutputFormat, Sampling, Thinking, Tool, ToolChoice


class Continuation(Node, frozen=True):
    """What the provider holds, or should hold, of the conversation."""

    kind: Literal["response", "conversation", "thread", "interaction", "cache"] | None = None
    id: str | None = None
    store: bool | None = None
    background: bool | None = None


class Request(Node, frozen=True):
    """`origin` is the protocol it was written in: encoded there again, its order and grouping stay as they are.

    `continued`: the last message is the start of the answer, and the model goes on where it ends.
    `plain` is set by a decoder that met no extras at all, so that nobody needs to look for them.
    """

    origin: str
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
    continued: bool = False
    plain: bool = False
