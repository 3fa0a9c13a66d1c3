"""Hosted tools of an agent: web search, page fetching and code execution, run by the provider if it has them.

    Agent("anthropic/claude-sonnet-5", tools=[WebSearch()], policy=Policy(allow=["web_search"]))

Policy rules refer to them as `web_search`, `web_fetch` and `code_execution`, whether the provider or toolwire runs
them. A provider runs its tools without asking for approval, so it gets them only if the policy allows every call.
Otherwise, and if the provider lacks a tool, toolwire runs a tool of the same name. Its calls go through the policy.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import HostedKind, HostedTool, NativeTool
from toolwire.codec.options import OptionsMeta
from toolwire.installation import has_extra, missing_extra_message
from toolwire.runtime.policy import Policy, is_denied
from toolwire.runtime.tool import DIRECT_CALLER, Arguments, Tool, ToolCatalog, ToolContext, ToolError
from toolwire.runtime.tools.domain_filter import DomainFilter
from toolwire.translation.hosted_support import HostedSupport

if TYPE_CHECKING:
    from toolwire.runtime.sandbox.code.tool import CodeSandbox
    from toolwire.runtime.tools.web_search import SearchBackend

RunBy: TypeAlias = Literal["provider", "toolwire"]
SupportLookup: TypeAlias = Callable[..., HostedSupport]
"""Returns the support of a model for a hosted tool; `has_functions` states if functions are declared as well."""

_MAX_COUNTED_RUNS = 1024
_NO_HOSTED_TOOLS = HostedSupport(unsupported="the model has no hosted tools")


class UnavailableTool(ToolwireError):
    """A hosted tool can't run here; the message has the reason and the remedy."""


class HostedToolOptions(Struct, frozen=True, kw_only=True, metaclass=OptionsMeta):
    """The options that all hosted tools have."""

    kind: ClassVar[HostedKind]

    max_uses: int | None = None
    """Maximum number of calls: in one response if the provider runs them, in one run if toolwire does."""
    run_by: RunBy | None = None
    """`provider` or `toolwire`. Default: the provider if it can and the policy allows it, otherwise toolwire."""

    def hosted(self) -> HostedTool:
        """Return the vendor-neutral declaration."""
        return HostedTool(kind=self.kind, max_uses=self.max_uses)

    def provider_tool(self) -> Tool:
        """Return the tool as the provider runs it. Only its declaration and its name for the policy are used."""

        async def fail(_arguments: Arguments, _context: ToolContext[Any]) -> str:
            """Raise `ToolError`."""
            raise ToolError(f"{self.kind} is run by the provider", "provider")

        return Tool(
            name=self.kind,
            run=fail,
            locus="provider",
            source="provider",
            allowed_callers=(DIRECT_CALLER,),
            native=NativeTool(protocol="", kind=self.kind, name=self.kind, body=Raw(b"{}"), hosted=self.hosted()),
        )


class _WebTool(HostedToolOptions, frozen=True, kw_only=True):
    """The options of tools that read the web."""

    allowed_domains: tuple[str, ...] = ()
    """The only domains to use, with their subdomains."""
    blocked_domains: tuple[str, ...] = ()
    """Domains not to use."""

    def __post_init__(self) -> None:
        """Check the domains."""
        for domain in (*self.allowed_domains, *self.blocked_domains):
            if not domain or "/" in domain or ":" in domain:
                raise ToolwireError(f"{domain!r} is not a domain: write it like example.com")

    def hosted(self) -> HostedTool:
        """Return the vendor-neutral declaration."""
        return replace(
            super().hosted(),
            allowed_domains=self.allowed_domains or None,
            blocked_domains=self.blocked_domains or None,
        )

    @property
    def domains(self) -> DomainFilter:
        """The domains as a filter."""
        return DomainFilter(self.allowed_domains, self.blocked_domains)


class WebSearch(_WebTool, frozen=True, kw_only=True):
    """Web search, as an entry of an agent's tools.

    `backend` is the service that toolwire uses where the provider has no search; by default that of `[search]` in the
    agent's configuration.
    """

    kind: ClassVar[HostedKind] = "web_search"

    location: Mapping[str, str] | None = None
    """Approximate location of the user: `city`, `region`, `country`, `timezone`."""
    backend: "SearchBackend | None" = None

    def hosted(self) -> HostedTool:
        """Return the vendor-neutral declaration."""
        location = None if self.location is None else {"type": "approximate", **self.location}
        return replace(super().hosted(), location=None if location is None else Raw(msgspec.json.encode(location)))


class WebFetch(_WebTool, frozen=True, kw_only=True):
    """Fetching of web pages, as an entry of an agent's tools."""

    kind: ClassVar[HostedKind] = "web_fetch"


class CodeExecution(HostedToolOptions, frozen=True, kw_only=True):
    """Execution of programs that the model writes, as an entry of an agent's tools.

    Where the provider has no sandbox, programs run in toolwire's, which has no network and no files.
    """

    kind: ClassVar[HostedKind] = "code_execution"


AnyHostedTool: TypeAlias = WebSearch | WebFetch | CodeExecution


class HostedTools:
    """The hosted tools of an agent, and toolwire's tools in their place."""

    def __init__(self, sources: Iterable[AnyHostedTool]) -> None:
        """Store the tools by name."""
        self.sources: dict[str, AnyHostedTool] = {source.kind: source for source in sources}
        self._local_tools: dict[str, Tool] = {}
        self._sandbox: CodeSandbox | None = None

    def choose_for(
        self, model: object, catalog: ToolCatalog, policy: Policy, *, code: bool
    ) -> tuple[ToolCatalog, list[str]]:
        """Return the tools of a turn and warnings. Each hosted tool is in the form of the provider or of toolwire.

        `code`: the code tool is declared as well.
        """
        offered = [
            name for name in self.sources if name in catalog.tools and not is_denied(policy, catalog.tools[name])
        ]
        if not offered:
            return catalog, []
        others = {name: tool for name, tool in catalog.tools.items() if name not in self.sources}
        support = getattr(model, "hosted_support", None)
        chosen, warnings = self.choose(offered, policy, support, has_functions=bool(others) or code)
        return replace(catalog, tools={**others, **chosen}), warnings

    def choose(
        self, names: Collection[str], policy: Policy, support: SupportLookup | None, *, has_functions: bool
    ) -> tuple[dict[str, Tool], list[str]]:
        """Choose for each named tool whether the provider or toolwire runs it in this turn; return tools and warnings.

        `support` looks up the support of the model for a tool. `has_functions`: functions are declared as well.
        """
        chosen, warnings = self._choose(names, policy, support, has_functions=has_functions)
        if not has_functions and any(tool.native is None for tool in chosen.values()):
            chosen, warnings = self._choose(names, policy, support, has_functions=True)
        return chosen, warnings

    def _choose(
        self, names: Collection[str], policy: Policy, support: SupportLookup | None, *, has_functions: bool
    ) -> tuple[dict[str, Tool], list[str]]:
        """Choose as `choose` does, without regard to functions that the choice itself adds."""
        chosen: dict[str, Tool] = {}
        warnings: list[str] = []
        for name in names:
            source = self.sources[name]
            tool = source.provider_tool()
            found = _find_support(source, tool, policy, support, has_functions=has_functions)
            if found.unsupported is None:
                chosen[name] = tool
                warnings += [f"the provider's {name} ignores {option}" for option in found.lost_options]
            elif source.run_by == "provider":
                warnings.append(f"{name} was left out: {found.unsupported}")
            else:
                try:
                    chosen[name] = self._local_tool(source)
                except UnavailableTool as error:
                    warnings.append(f"{name} was left out: {found.unsupported}; and toolwire can't run it: {error}")
        return chosen, warnings

    def _local_tool(self, source: AnyHostedTool) -> Tool:
        """Return the tool that toolwire runs, created once; raise `UnavailableTool` if something for it is missing."""
        if (known := self._local_tools.get(source.kind)) is not None:
            return known
        extra = "code" if isinstance(source, CodeExecution) else "web"
        if not has_extra(extra):
            raise UnavailableTool(missing_extra_message(extra, source.kind))
        match source:
            case WebSearch():
                tool = _search_tool(source)
            case WebFetch():
                tool = _fetch_tool(source)
            case CodeExecution():
                tool = self._code_tool()
        self._local_tools[source.kind] = _limited(replace(tool, name=source.kind), source.max_uses)
        return self._local_tools[source.kind]

    def _code_tool(self) -> Tool:
        """Return the tool that runs programs in toolwire's sandbox."""
        from toolwire.runtime.sandbox.code.tool import CodeSandbox  # noqa: PLC0415 - needed only to run programs

        self._sandbox = CodeSandbox()
        # A program can't reach anything, so it may be run again.
        return replace(self._sandbox.tool(()), resumable=True)

    async def close(self) -> None:
        """Stop the sandbox, if it was started."""
        if self._sandbox is not None:
            await self._sandbox.close()


def _find_support(
    source: AnyHostedTool, tool: Tool, policy: Policy, support: SupportLookup | None, *, has_functions: bool
) -> HostedSupport:
    """Return whether the provider can and may run the tool."""
    if source.run_by == "toolwire":
        return HostedSupport(unsupported="toolwire is to run it")
    if support is None or tool.native is None:
        return _NO_HOSTED_TOOLS
    found = support(tool.native, has_functions=has_functions)
    if found.unsupported is None and (restriction := policy.restriction_of(tool)) is not None:
        hint = f"to let the provider run it unasked, add Policy(allow=[{tool.name!r}])"
        return HostedSupport(unsupported=f"{restriction} ({hint})")
    return found


def _search_tool(source: WebSearch) -> Tool:
    """Return the search tool with the backend of the source; raise `UnavailableTool` without one."""
    from toolwire.runtime.tools.web_search import web_search_tools  # noqa: PLC0415 - needed only where it runs

    if source.backend is None:
        raise UnavailableTool("it has no search service: pass WebSearch(backend=...) or set [search] url")
    (tool,) = web_search_tools(source.backend, source.domains)
    return tool


def _fetch_tool(source: WebFetch) -> Tool:
    """Return the tool that fetches pages."""
    from toolwire.runtime.tools.web_fetch import FetchOptions, web_fetch_tools  # noqa: PLC0415 - needed only where it runs

    (tool,) = web_fetch_tools(FetchOptions(domains=source.domains))
    return tool


def _limited(tool: Tool, limit: int | None) -> Tool:
    """Return the tool with a maximum number of calls in each run."""
    if limit is None:
        return tool
    counts: dict[str, int] = {}

    async def run(arguments: Arguments, context: ToolContext[Any]) -> Any:
        """Run the tool, unless this run has reached the limit."""
        count = counts.get(context.run, 0)
        if count >= limit:
            raise ToolError(f"{tool.name} may be called {limit} times in a run", "limit")
        if len(counts) >= _MAX_COUNTED_RUNS:
            counts.pop(next(iter(counts)))
        counts[context.run] = count + 1
        return await tool.run(arguments, context)

    return replace(tool, run=run)
