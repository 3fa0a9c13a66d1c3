"""What the Anthropic Messages API rejects, rule by rule, in its own words where they are known.

What Messages clients are known to send and the provider to refuse, mended: a limit, an id, a mark, a last word,
a choice.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace

from toolwire.canonical.content import Message, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, Tool
from toolwire.codec.encoding.ids import legal_id
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport, WireNames
from toolwire.codec.validation import (
    Finding,
    Findings,
    JsonObject,
    JsonPath,
    Level,
    list_of,
    object_items,
    object_of,
    text_of,
    value_at,
)
from toolwire.protocols.anthropic.fields import (
    ERROR_WORDING,
    UNFINISHED_BLOCKS,
    ModelVersion,
    check_block,
    check_fields,
    check_output,
    check_removed,
    check_settings,
    check_tool,
    model_version,
    refuses_forced_choice,
    refuses_prefill,
    refuses_system_messages,
)
from toolwire.protocols.anthropic.parts.messages import CONTINUE_PROMPT, USER_LAST_REASON
from toolwire.protocols.anthropic.request import ID_AND_NAME_RULES
from toolwire.protocols.anthropic.settings import MIN_BUDGET
from toolwire.protocols.anthropic.wire import FAMILY

_ROLE_INITIALS = {"user": "u", "assistant": "a", "system": "s"}
_finding = ERROR_WORDING.finding


class _Turn(NamedTuple):
    """A message, or neighbouring messages of one role, which the server reads as one."""

    role: str
    path: JsonPath
    blocks: list[tuple[JsonPath, JsonObject]]

    def ids(self, tag: str, name: str) -> list[tuple[JsonPath, str]]:
        return [(path, text_of(block.get(name))) for path, block in self.blocks if block.get("type") == tag]


_EMPTY_TURN = _Turn("", (), [])


class _Request(NamedTuple):
    body: JsonObject
    model: str
    version: ModelVersion
    # What `2026-10-21` took away is refused, perhaps refused (version unknown), or still taken.
    removal: Level | None
    tools: list[tuple[JsonPath, JsonObject]]
    messages: list[_Turn]
    turns: list[_Turn]  # of user and assistant

    def blocks(self) -> list[tuple[str, JsonPath, JsonObject]]:
        """Every block with the initial of who says it; `r` is the content of a tool's result."""
        said = [("s", path, block) for path, block in object_items(self.body.get("system"), ("system",))]
        for turn in self.messages:
            for path, block in turn.blocks:
                said.append((_ROLE_INITIALS.get(turn.role, ""), path, block))
                if block.get("type") == "tool_result":
                    said += [("r", *part) for part in object_items(block.get("content"), (*path, "content"))]
        return said


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """`model` overrides the body's; `version` is the `anthropic-version` header, where known."""
    if not isinstance(body, dict):
        return [_finding("body", (), "Input should be a valid dictionary")]
    name = model or text_of(body.get("model"))
    removed: Level | None = "warning" if version is None else "error" if version >= "2026-10-21" else None
    messages = [_read_turn(path, message) for path, message in object_items(body.get("messages"), ("messages",))]
    turns: list[_Turn] = []
    for message in messages:
        if message.role == "system":
            continue
        if turns and turns[-1].role == message.role:
            turns[-1].blocks.extend(message.blocks)
        else:
            turns.append(message._replace(blocks=[*message.blocks]))
    tools = object_items(body.get("tools"), ("tools",))
    request = _Request(body, name, model_version(name), removed, tools, messages, turns)
    return [finding for rule in _RULES for finding in rule(request)]


def _read_turn(path: JsonPath, message: JsonObject) -> _Turn:
    content, at = message.get("content"), (*path, "content")
    whole: list[tuple[JsonPath, JsonObject]] = [(at, {"type": "text", "text": content})]
    blocks = whole if isinstance(content, str) and content else object_items(content, at)
    return _Turn(text_of(message.get("role")), path, blocks)


def _check_shapes(request: _Request) -> Findings:
    yield from check_fields(request.body)
    yield from check_settings(request.body, request.version[1], request.removal)
    yield from check_output(request.body, request.version)
    for path, tool in request.tools:
        yield from check_tool(path, tool)
    for role, path, block in request.blocks():
        yield from check_block(role, path, block)
        if request.removal:
            yield from check_removed(role, path, block, request.removal)


# ---- messages


def _check_messages(request: _Request) -> Findings:
    listed, last = request.body.get("messages"), request.messages[-1] if request.messages else _EMPTY_TURN
    if listed == [] and value_at(request.body, "thread", "type") != "continue":
        yield _finding("messages-empty", ("messages",), "messages: at least one message is required")
    if len(request.messages) > 100_000:
        yield _finding("messages-limit", ("messages",), "messages: List should have at most 100000 items")
    for path, message in object_items(listed, ("messages",)):
        optional = message.get("role") == "assistant" and path == last.path
        if message.get("content") in ("", []) and not optional:
            said = "all messages must have non-empty content except for the optional final assistant message"
            yield _finding("message-empty", path, f"{{at}}: {said}")


def _check_prefill(request: _Request) -> Findings:
    last = request.messages[-1] if request.messages else _EMPTY_TURN
    if last.role != "assistant" or any(text_of(block.get("type")) in UNFINISHED_BLOCKS for _, block in last.blocks):
        return
    if refuses_prefill(request.model):
        said = "This model does not support assistant message prefill. "
        said += "The conversation must end with a user message."
        yield _finding("prefill", last.path, said)
    if value_at(request.body, "output_config", "format"):
        yield _finding("format-prefill", last.path, "output_config.format is incompatible with message prefill")
    tail = text_of(last.blocks[-1][1].get("text")) if last.blocks else ""
    if tail != tail.rstrip():
        said = "messages: final assistant content cannot end with trailing whitespace"
        yield _finding("prefill-whitespace", last.blocks[-1][0], said)


def _check_system_messages(request: _Request) -> Findings:
    """Neighbouring system messages are one section, so only its ends have to be in place."""
    around = [_EMPTY_TURN, *request.messages, _EMPTY_TURN]
    for before, turn, after in zip(around, request.messages, around[2:], strict=False):
        if turn.role != "system":
            continue
        end = text_of(before.blocks[-1][1].get("type")) if before.blocks else ""
        follows = before.role in ("user", "system") or end.endswith("_tool_result")
        if not follows or after.role not in ("assistant", "system", ""):
            said = "{at}: a `system` message must follow a `user` message or a server tool result, "
            said += "and be last or before an `assistant` message"
            yield _finding("system-placement", turn.path, said)
        if refuses_system_messages(request.model):
            yield _finding("system-model", turn.path, "role 'system' is not supported on this model")
        message = object_of(list_of(request.body.get("messages"))[int(turn.path[1])])
        if not message.get("content") and not message.get("output_config"):
            said = "{at}: a `system` message must have content or output_config"
            yield _finding("system-empty", turn.path, said)


# ---- calls and results


def _check_call_ids(request: _Request) -> Findings:
    earlier: set[str] = set()
    for turn in request.turns:
        within: set[str] = set()
        for path, name in turn.ids("tool_use", "id") + turn.ids("server_tool_use", "id"):
            if name in earlier:
                # Recorded: an id that an earlier turn used is taken, whatever the text says.
                level: Level = "error" if name in within else "warning"
                yield _finding("call-id-duplicate", path, "{at}: `tool_use` ids must be unique", level)
            within.add(name)
            earlier.add(name)


def _check_calls(request: _Request) -> Findings:
    for turn, following in zip(request.turns, [*request.turns[1:], _EMPTY_TURN], strict=False):
        calls, results = turn.ids("tool_use", "id"), following.ids("tool_result", "tool_use_id")
        answered = {name for _, name in results}
        first = {path for path, _ in following.blocks[: len(results)]}
        broken = {
            "result-missing": [(path[:2], name) for path, name in calls if name not in answered],
            "result-not-first": [(path, name) for path, name in results if calls and path not in first],
        }
        for rule, places in broken.items():
            if places:
                said = "{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                said += ", ".join(name for _, name in places) + ". Each `tool_use` block must have "
                said += "a corresponding `tool_result` block in the next message."
                yield _finding(rule, places[0][0], said)


def _check_results(request: _Request) -> Findings:
    for turn, before in zip(request.turns, [_EMPTY_TURN, *request.turns], strict=False):
        calls = {name for _, name in before.ids("tool_use", "id")}
        seen: set[str] = set()
        for path, name in turn.ids("tool_result", "tool_use_id") if turn.role == "user" else []:
            if name in seen:
                said = "{at}: each tool_use must have a single result. "
                said += f"Found multiple `tool_result` blocks with id: {name}"
                yield _finding("result-duplicate", path, said)
            elif name not in calls and value_at(request.body, "thread", "type") != "continue":
                said = f"{{at}}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. "
                said += "Each `tool_result` block must have a corresponding `tool_use` block "
                said += "in the previous message."
                yield _finding("result-orphan", path, said)
            seen.add(name)


def _check_server_calls(request: _Request) -> Findings:
    """A server's call has its result later, unless the turn is paused: then only tool results may follow."""
    results: set[str] = set()
    spoken = 0
    blocks = [(turn.role, path, block) for turn in request.turns for path, block in turn.blocks]
    for index, (role, _, block) in enumerate(blocks):
        if block.get("type") != "tool_result":
            results.add(text_of(block.get("tool_use_id")))
            spoken = index if role == "user" else spoken
    provided = {text_of(tool.get("name")) for _, tool in request.tools} - {""}
    opened: set[str] = set()
    for index, (_, path, block) in enumerate(blocks):
        tag, name, call = text_of(block.get("type")), text_of(block.get("name")), text_of(block.get("id"))
        if tag in ("server_tool_use", "mcp_tool_use"):
            opened.add(call)
            found = f"{{at}}: `{name}` tool use with id `{call}` was found"
            if call not in results and index < spoken:
                said = f"{found} without a corresponding `{name}_tool_result` block"
                yield _finding("server-result-missing", path, said)
            # The code execution tool's own calls are `bash_code_execution` and the like.
            elif call not in results and tag == "server_tool_use" and not any(n in name for n in provided):
                yield _finding("server-tool-absent", path, f"{found}, but no `{name}` tool was provided")
        elif tag.endswith("_tool_result") and text_of(block.get("tool_use_id")) not in opened:
            caller = "mcp_tool_use" if tag == "mcp_tool_result" else "server_tool_use"
            answered = text_of(block.get("tool_use_id"))
            said = f"{{at}}: unexpected `tool_use_id` found in `{tag}` blocks: {answered}. "
            said += f"Each `{tag}` block must have a corresponding `{caller}` block before it."
            yield _finding("server-result-orphan", path, said)


def _check_programmatic_results(request: _Request) -> Findings:
    pending = request.turns[-2].blocks if len(request.turns) > 1 and request.turns[-1].role == "user" else []
    for path, block in pending if not request.body.get("container") else []:
        if text_of(value_at(block, "caller", "type")).startswith("code_execution"):
            said = "container_id is required when there are pending tool uses generated by code execution "
            yield _finding("container-missing", path, said + "with tools.")


# ---- tools and caching


def _check_cache(request: _Request) -> Findings:
    tools = [("", path, tool) for path, tool in request.tools]
    marked = [(path, block) for _, path, block in tools + request.blocks() if block.get("cache_control")]
    count = len(marked) + bool(request.body.get("cache_control"))
    if count > 4:
        said = f"A maximum of 4 blocks with cache_control may be provided. Found {count}."
        yield _finding("cache-limit", (*marked[-1][0], "cache_control"), said)
    short = False
    for path, block in marked:
        long = value_at(block, "cache_control", "ttl") == "1h"
        if long and short:
            said = "{at}: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
            said += "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
            yield _finding("cache-order", (*path, "cache_control", "ttl"), said)
        short = short or not long


def _check_tools(request: _Request) -> Findings:
    names: set[str] = set()
    for path, tool in request.tools:
        name, tag = text_of(tool.get("name")), text_of(tool.get("type"))
        key = name or f"{tag} {text_of(tool.get('mcp_server_name'))}"
        if key in names:
            yield _finding("tool-names-unique", path, "tools: Tool names must be unique.")
        names.add(key)
        if tool.get("defer_loading") is True and tool.get("cache_control"):
            said = f"Tool '{name}' cannot have both defer_loading=true and cache_control set."
            yield _finding("tool-deferred-cached", (*path, "cache_control"), said)
        if tool.get("allowed_domains") and tool.get("blocked_domains"):
            said = "{at}: only one of allowed_domains and blocked_domains may be given"
            yield _finding("tool-domains", path, said)
        if request.version == ("opus", (5, 5)) and re.match(r"computer_\d", tag):
            yield _finding("tool-model", path, f"'{request.model}' does not support tool types: {tag}.")
    if request.tools and all(tool.get("defer_loading") is True for _, tool in request.tools):
        said = "At least one tool must have defer_loading=false. All tools cannot be deferred."
        yield _finding("tools-all-deferred", ("tools",), said)
    if len([tool for _, tool in request.tools if tool.get("strict") is True]) > 20:
        yield _finding("strict-limit", ("tools",), "Schema is too complex for compilation.")


def _check_toolsets(request: _Request) -> Findings:
    """A result says whose member it answers, as the call did; no words for this are known."""
    called: dict[str, object] = {}
    for _, path, block in request.blocks():
        if block.get("type") == "tool_use":
            called[text_of(block.get("id"))] = block.get("toolset_name")
        id = text_of(block.get("tool_use_id"))
        if block.get("type") == "tool_result" and id in called and block.get("toolset_name") != called[id]:
            said = f"{{at}}: `toolset_name` must be that of the `tool_use` block it answers: {called[id]!r}."
            yield _finding("result-toolset", path, said)


def _check_references(request: _Request) -> Findings:
    """A tool that is referred to is one of the request's; those of MCP servers are not known here."""
    body, known = request.body, {text_of(tool.get("name")) for _, tool in request.tools}
    servers = {text_of(server.get("name")) for _, server in object_items(body.get("mcp_servers"), ())}
    for path, tool in request.tools:
        server = text_of(tool.get("mcp_server_name"))
        if tool.get("type") == "mcp_toolset" and server not in servers:
            said = f"{{at}}: MCP server '{server}' not found in mcp_servers"
            yield _finding("mcp-server-unknown", (*path, "mcp_server_name"), said)
    referred: list[tuple[JsonPath, object]] = []
    for _, path, block in request.blocks():
        known.add(text_of(value_at(block, "tool", "definition", "name")))
        found = value_at(block, "content", "tool_references")
        parts = [(path, block), *object_items(found, (*path, "content", "tool_references"))]
        referred += [(place, part.get("tool_name")) for place, part in parts if part.get("type") == "tool_reference"]
        if value_at(block, "tool", "type") == "tool_reference":
            referred.append(((*path, "tool"), value_at(block, "tool", "name")))
    for path, name in referred if not servers else []:
        if isinstance(name, str) and name not in known:
            said = f"Tool reference '{name}' not found in available tools"
            yield _finding("tool-reference-unknown", path, said)
    name = text_of(value_at(body, "tool_choice", "name"))
    if name and name not in known and not servers:
        yield _finding("choice-unknown", ("tool_choice", "name"), f"Tool '{name}' not found in provided tools")


def _check_programmatic_callers(request: _Request) -> Findings:
    """Programmatic calling needs a code execution tool, and does not reach the tools of the MCP connector."""
    has_code = any(text_of(tool.get("type")).startswith("code_execution_") for _, tool in request.tools)
    for path, tool in request.tools:
        configs = object_of(tool.get("configs"))
        settings = [(path, tool), ((*path, "default_config"), object_of(tool.get("default_config")))]
        settings += [((*path, "configs", name), object_of(config)) for name, config in configs.items()]
        for place, setting in settings:
            callers = [text_of(caller) for caller in list_of(setting.get("allowed_callers"))]
            if not any(caller.startswith("code_execution_") for caller in callers):
                continue
            at = (*place, "allowed_callers")
            if tool.get("type") == "mcp_toolset":
                said = "{at}: MCP connector tools cannot be called programmatically"
                yield _finding("mcp-programmatic", at, said)
            elif not has_code:
                said = "{at}: programmatic tool calling needs a code execution tool in `tools`"
                yield _finding("callers-without-code", at, said, "warning")


# ---- settings


def _check_choice(request: _Request) -> Findings:
    choice, at = object_of(request.body.get("tool_choice")), ("tool_choice",)
    callers = {text_of(tool.get("name")): list_of(tool.get("allowed_callers")) for _, tool in request.tools}
    programmatic = any(caller != "direct" for named in callers.values() for caller in named)
    if programmatic and choice.get("disable_parallel_tool_use") is True:
        said = "disable_parallel_tool_use is not supported with programmatic tool calling"
        yield _finding("choice-programmatic", at, f"{{at}}: {said}")
    if choice.get("type") not in ("any", "tool"):
        return
    if not request.tools and not any(turn.role == "system" for turn in request.messages):
        said = "{at}: tool_choice may only be specified while providing tools."
        yield _finding("choice-without-tools", at, said)
    named = callers.get(text_of(choice.get("name")))
    if named and "direct" not in named:
        said = "{at}: a tool without `direct` in allowed_callers cannot be forced"
        yield _finding("choice-not-direct", (*at, "name"), said)
    if value_at(request.body, "thinking", "type") == "enabled":
        yield _finding("choice-thinking", at, "Thinking may not be enabled when tool_choice forces tool use.")
    if refuses_forced_choice(request.model):
        yield _finding("choice-model", at, '{at}: type "tool" and "any" are not supported for this model.')


def _check_thinking_blocks(request: _Request) -> Findings:
    """Newer servers go on without thinking instead of refusing; hence a warning."""
    called, answered = request.turns[-2:] if len(request.turns) > 1 else (_EMPTY_TURN, _EMPTY_TURN)
    start = text_of(called.blocks[0][1].get("type")) if called.blocks else "thinking"
    manual = value_at(request.body, "thinking", "type") == "enabled"
    if manual and answered.ids("tool_result", "tool_use_id") and start not in ("thinking", "redacted_thinking"):
        said = f"{{at}}.type: Expected `thinking` or `redacted_thinking`, but found `{start}`. When "
        said += "`thinking` is enabled, a final `assistant` message must start with a thinking block."
        yield _finding("thinking-first", called.blocks[0][0], said, "warning")


def _check_citations(request: _Request) -> Findings:
    for _, path, block in request.blocks() if value_at(request.body, "output_config", "format") else []:
        if value_at(block, "citations", "enabled") is True:
            yield _finding("format-citations", path, "output_config.format is incompatible with citations")


_RULES = (
    _check_shapes,
    _check_messages,
    _check_prefill,
    _check_system_messages,
    _check_call_ids,
    _check_calls,
    _check_results,
    _check_toolsets,
    _check_server_calls,
    _check_programmatic_results,
    _check_programmatic_callers,
    _check_cache,
    _check_tools,
    _check_references,
    _check_choice,
    _check_thinking_blocks,
    _check_citations,
)


def repair_request(request: Request, target: Target, names: WireNames, report: LossReport) -> Request:
    """The same request where nothing is wrong with it. What others send is the encoder's to make right."""
    if request.origin != FAMILY:
        return request
    changed: dict[str, Any] = {}
    _repair_budget(request, changed, report)
    _repair_marks(request, changed, report)
    _repair_ids(request, changed, report)
    _repair_prefill(request, target, changed, report)
    _repair_choice(request, target, changed, report)
    return replace(request, **changed) if changed else request


def _repair_budget(request: Request, changed: dict[str, Any], report: LossReport) -> None:
    """qwen-code thinks for as long as it may answer; the answer must be longer."""
    thinking, limit = request.thinking, request.sampling.max_tokens if request.sampling else None
    if thinking is None or thinking.budget_tokens is None or limit is None or thinking.budget_tokens < limit:
        return
    if limit > MIN_BUDGET:
        changed["thinking"] = replace(thinking, budget_tokens=limit - 1)
        why = f"less than max_tokens, as the provider wants it: {limit - 1}"
    else:
        changed["thinking"] = None
        why = "there is no room to think within max_tokens"
    report.approximated(("thinking",), "budget_tokens", why)


def _repair_marks(request: Request, changed: dict[str, Any], report: LossReport) -> None:
    """A tool that is loaded later can't be the end of what is cached: the last one before is."""
    if request.tools is None or not any(map(_has_cache_mark, request.tools)):
        return
    tools = list(request.tools)
    marked = [place for place, tool in enumerate(tools) if _has_cache_mark(tool)]
    present = [place for place, tool in enumerate(tools) if type(tool) is FunctionTool and not tool.defer]
    last = present[-1] if present else None
    for place in marked:
        tool: Any = tools[place]
        report.approximated(("tools", place, "cache"), "", "moved to the last tool that is not deferred")
        if last is not None and getattr(tools[last], "cache", None) is None:
            tools[last] = replace(tools[last], cache=tool.cache)
        tools[place] = replace(tool, cache=None)
    changed["tools"] = tuple(tools)


def _repair_prefill(request: Request, target: Target, changed: dict[str, Any], report: LossReport) -> None:
    """Clients that begin the answer themselves, as older models could continue it."""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or not refuses_prefill(target.model or request.model or ""):
        return
    if any(
        isinstance(part, ToolCall | ToolResult) or getattr(part, "kind", "") in UNFINISHED_BLOCKS for part in last.parts
    ):
        return
    said = changed.get("messages", request.messages)
    changed["messages"] = (*said, Message(role="user", parts=(Text(text=CONTINUE_PROMPT),)))
    report.added((), "", f"/messages/{len(said)}", USER_LAST_REASON)


def _repair_choice(request: Request, target: Target, changed: dict[str, Any], report: LossReport) -> None:
    """Claude Code forces its web search where the model's name is of one that can be forced, and another may answer."""
    choice = request.tool_choice
    if choice is None or choice.mode not in ("required", "named"):
        return
    if refuses_forced_choice(target.model or request.model or ""):
        changed["tool_choice"] = replace(choice, mode="auto", names=())
        report.approximated(("tool_choice",), "mode", "the model can't be forced to call: it may choose")


def _has_cache_mark(tool: Tool) -> bool:
    return type(tool) is FunctionTool and tool.cache is not None and tool.defer is True


@lru_cache(maxsize=8192)
def _is_valid_id(id: str | None) -> bool:
    """A conversation says each id again with every turn."""
    return not id or (len(id) <= ID_AND_NAME_RULES.id_limit and ID_AND_NAME_RULES.id_pattern.fullmatch(id) is not None)


def _repair_ids(request: Request, changed: dict[str, Any], report: LossReport) -> None:
    messages: list[Message] | None = None
    for number, message in enumerate(request.messages):
        for place, part in enumerate(message.parts):
            if type(part) is ToolCall:
                field, id = "id", part.id
            elif type(part) is ToolResult:
                field, id = "call_id", part.call_id
            else:
                continue
            if id is None or _is_valid_id(id):
                continue
            messages = list(request.messages) if messages is None else messages
            parts: list[Any] = list(messages[number].parts)
            parts[place] = replace(
                part, **{field: legal_id(id, ID_AND_NAME_RULES.id_pattern, ID_AND_NAME_RULES.id_limit)}
            )
            messages[number] = replace(messages[number], parts=tuple(parts))
            report.approximated(("messages", number, "parts", place), field, "an id that the provider takes")
    if messages is not None:
        changed["messages"] = tuple(messages)
