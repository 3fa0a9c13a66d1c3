"""What a model may call, how it is asked to choose, and how it is asked to think and answer."""

from typing import Literal

from toolwire.canonical.node import Node, Raw


class CacheMark(Node, frozen=True, tag=True):
    """A prompt prefix up to here is worth keeping."""

    ttl: str | None = None


class FunctionTool(Node, frozen=True, tag=True):
    name: str
    description: str | None = None
    parameters: Raw | None = None
    namespace: str | None = None
    strict: bool | None = None
    defer: bool | None = None
    allowed_callers: tuple[str, ...] | None = None
    asynchronous: bool | None = None
    output_schema: Raw | None = None
    cache: CacheMark | None = None


class Grammar(Node, frozen=True, tag=True):
    syntax: str
    definition: str


class FreeformTool(Node, frozen=True, tag=True):
    """A tool whose input is text, perhaps bound by a grammar."""

    name: str
    description: str | None = None
    grammar: Grammar | None = None
    namespace: str | None = None
    defer: bool | None = None
    allowed_callers: tuple[str, ...] | None = None
    asynchronous: bool | None = None
    cache: CacheMark | None = None


class ToolGroup(Node, frozen=True, tag=True):
    name: str
    tools: tuple[FunctionTool | FreeformTool, ...]
    description: str | None = None


HostedKind = Literal["web_search", "web_fetch", "code_execution"]
"""What several vendors run themselves."""


class HostedTool(Node, frozen=True, tag=True):
    """What a vendor's own tool does, in common words, and what bounds it. `others` are the members of its declaration
    that have no common word."""

    kind: HostedKind
    max_uses: int | None = None
    allowed_domains: tuple[str, ...] | None = None
    blocked_domains: tuple[str, ...] | None = None
    location: Raw | None = None
    context_size: str | None = None
    max_content_tokens: int | None = None
    others: tuple[str, ...] = ()


class McpServer(Node, frozen=True, tag=True):
    """A server whose tools the provider itself calls; `allowed` are the only ones, if not all. `unportable`: why no
    other vendor can be told of it. `others` are pointers from the root to what has no common word."""

    name: str
    url: str
    authorization: str | None = None
    headers: Raw | None = None
    allowed: tuple[str, ...] | None = None
    description: str | None = None
    unportable: str | None = None
    others: tuple[str, ...] = ()


class Computer(Node, frozen=True, tag=True):
    """A screen that the client drives for the model. `dialect` is the vendor's word for how it is told, `kinds` are the
    actions that can be told so. `width` and `height` are in pixels; `others` are pointers to what else was said, and
    `form` names what was not."""

    dialect: str
    kinds: tuple[str, ...] = ()
    width: int | None = None
    height: int | None = None
    environment: Literal["browser", "desktop", "mobile"] | None = None
    others: tuple[str, ...] = ()


class NativeTool(Node, frozen=True, tag=True):
    """A vendor's own tool, as it declares it. `kind` is the vendor's word without its date. What only holds
    a place for tools that come later is run by nobody."""

    protocol: str
    kind: str
    body: Raw
    name: str | None = None
    executor: Literal["client", "server", "nobody"] = "server"
    cache: CacheMark | None = None
    hosted: HostedTool | None = None
    server: McpServer | None = None
    computer: Computer | None = None


Tool = FunctionTool | FreeformTool | ToolGroup | NativeTool


class ToolRef(Node, frozen=True, tag=True):
    """A tool by name, declared elsewhere. `kind` says how its vendor would address it."""

    name: str
    namespace: str | None = None
    server: str | None = None
    kind: Literal["function", "freeform", "native", "server"] = "function"
    cache: CacheMark | None = None


class ToolChoice(Node, frozen=True):
    """`mode` absent: nothing was said of it, only of `parallel`. `natives`: names that may be chosen leave out the
    vendor's own tools, too, if they do not name them; else only functions are meant. `validated`: calls are held to
    their schemas."""

    mode: Literal["auto", "none", "required", "named", "allowed"] | None = None
    names: tuple[ToolRef, ...] = ()
    required: bool = False
    natives: bool = False
    parallel: bool | None = None
    validated: bool = False


class Thinking(Node, frozen=True):
    """`summary`: how long one is asked for, if that is said."""

    enabled: bool | None = None
    effort: str | None = None
    budget_tokens: int | None = None
    visibility: Literal["omitted", "summary", "full"] | None = None
    summary: Literal["concise", "detailed"] | None = None


class OutputFormat(Node, frozen=True):
    """`held`: the answer is held to the schema unasked, as some protocols always do."""

    kind: Literal["text", "json", "json_schema"] | None = None
    schema: Raw | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    held: bool = False
    verbosity: str | None = None


class Sampling(Node, frozen=True):
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
