"""Tool declarations, tool choice, and settings for thinking, output and sampling."""

from typing import Literal, final

from toolwire.canonical.node import Node, Raw


class CacheMark(Node, frozen=True, tag=True):
    """A prompt-cache breakpoint: the prefix up to this point should be cached."""

    ttl: str | None = None


@final
class FunctionTool(Node, frozen=True, tag=True):
    """A tool with JSON arguments, run by the client."""

    name: str
    description: str | None = None
    parameters: Raw | None = None
    namespace: str | None = None
    strict: bool | None = None
    defer: bool | None = None  # load the tool only when a tool search finds it
    allowed_callers: tuple[str, ...] | None = None  # the model itself, programs it writes, or both
    asynchronous: bool | None = None
    output_schema: Raw | None = None
    cache: CacheMark | None = None


class Grammar(Node, frozen=True, tag=True):
    """A grammar that restricts the input of a freeform tool."""

    syntax: str
    definition: str


@final
class FreeformTool(Node, frozen=True, tag=True):
    """A tool whose input is text, optionally restricted by a grammar."""

    name: str
    description: str | None = None
    grammar: Grammar | None = None
    namespace: str | None = None
    defer: bool | None = None
    allowed_callers: tuple[str, ...] | None = None
    asynchronous: bool | None = None
    cache: CacheMark | None = None


@final
class ToolGroup(Node, frozen=True, tag=True):
    """Tools under a common namespace."""

    name: str
    tools: tuple[FunctionTool | FreeformTool, ...]
    description: str | None = None


HostedKind = Literal["web_search", "web_fetch", "code_execution"]
"""Hosted tools that several vendors offer."""


class HostedTool(Node, frozen=True, tag=True):
    """A tool that the provider runs, in vendor-neutral terms."""

    kind: HostedKind
    max_uses: int | None = None
    allowed_domains: tuple[str, ...] | None = None
    blocked_domains: tuple[str, ...] | None = None
    location: Raw | None = None
    context_size: str | None = None
    max_content_tokens: int | None = None
    others: tuple[str, ...] = ()  # members of the declaration without a vendor-neutral equivalent


class McpServer(Node, frozen=True, tag=True):
    """An MCP server whose tools the provider itself calls."""

    name: str
    url: str
    authorization: str | None = None
    headers: Raw | None = None
    allowed: tuple[str, ...] | None = None  # names of the tools that may be called; None allows all
    description: str | None = None
    unportable: str | None = None  # why other vendors cannot use this server
    others: tuple[str, ...] = ()  # JSON pointers from the root to settings without a vendor-neutral equivalent


class Computer(Node, frozen=True, tag=True):
    """A screen that the client operates for the model."""

    dialect: str  # the vendor's name for its call format
    kinds: tuple[str, ...] = ()  # action kinds that the dialect can express
    width: int | None = None  # in pixels
    height: int | None = None  # in pixels
    environment: Literal["browser", "desktop", "mobile"] | None = None
    others: tuple[str, ...] = ()  # JSON pointers to settings without a vendor-neutral equivalent


@final
class NativeTool(Node, frozen=True, tag=True):
    """A vendor's own tool, as declared on the wire."""

    protocol: str
    kind: str  # the vendor's type without its date suffix
    body: Raw  # the declaration; for Gemini the value of its member
    name: str | None = None
    executor: Literal["client", "server", "nobody"] = "server"  # "nobody": a placeholder for tools that are added later
    cache: CacheMark | None = None
    hosted: HostedTool | None = None
    server: McpServer | None = None
    computer: Computer | None = None


Tool = FunctionTool | FreeformTool | ToolGroup | NativeTool


class ToolRef(Node, frozen=True, tag=True):
    """A reference, by name, to a tool declared elsewhere."""

    name: str
    namespace: str | None = None
    server: str | None = None
    kind: Literal["function", "freeform", "native", "server"] = "function"  # how the vendor addresses the tool
    cache: CacheMark | None = None


class ToolChoice(Node, frozen=True):
    """Constraints on the tools that the model may or must call."""

    mode: Literal["auto", "none", "required", "named", "allowed"] | None = None  # None: only `parallel` was given
    names: tuple[ToolRef, ...] = ()
    required: bool = False
    natives: bool = False  # `names` also restricts the vendor's own tools, not only functions
    parallel: bool | None = None
    validated: bool = False  # calls must match their schemas


class Thinking(Node, frozen=True):
    """Settings for the model's reasoning."""

    enabled: bool | None = None
    effort: str | None = None
    budget_tokens: int | None = None
    visibility: Literal["omitted", "summary", "full"] | None = None
    summary: Literal["concise", "detailed"] | None = None  # requested length of the summary


class OutputFormat(Node, frozen=True):
    """The format that the response text must have."""

    kind: Literal["text", "json", "json_schema"] | None = None
    schema: Raw | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    held: bool = False  # the protocol enforces the schema without being asked to
    verbosity: str | None = None


class Sampling(Node, frozen=True):
    """Sampling and output-limit parameters."""

    max_tokens: int | None = None
    temperature: int | float | None = None
    top_p: int | float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] | None = None
    n: int | None = None
    seed: int | None = None
    frequency_penalty: int | float | None = None
    presence_penalty: int | float | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
