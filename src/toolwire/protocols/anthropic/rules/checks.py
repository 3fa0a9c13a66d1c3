"""What the Anthropic Messages API rejects, rule by rule, in its own words where they are known."""

import re
from typing import NamedTuple

from toolwire.codec.check import (
    Finding,
    Findings,
    Level,
    Object,
    Path,
    dig,
    list_of,
    members,
    object_of,
    text_of,
)

from .vocabulary import (
    UNFINISHED,
    VOICE,
    ModelKind,
    check_block,
    check_fields,
    check_output,
    check_removed,
    check_settings,
    check_tool,
    model_kind,
    refuses_forcing,
    refuses_prefill,
    refuses_system_messages,
)

_INITIALS = {"user": "u", "assistant": "a", "system": "s"}
_found = VOICE.found


class _Turn(NamedTuple):
    """A message, or neighbouring messages of one role, which the server reads as one."""

    role: str
    path: Path
    blocks: list[tuple[Path, Object]]

    def ids(self, tag: str, name: str) -> list[tuple[Path, str]]:
        return [(path, text_of(block.get(name))) for path, block in self.blocks if block.get("type") == tag]


_NOTHING = _Turn("", (), [])


class _Request(NamedTuple):
    body: Object
    model: str
    kind: ModelKind
    # What `2026-10-21` took away is refused, perhaps refused (version unknown), or still taken.
    removed: Level | None
    tools: list[tuple[Path, Object]]
    messages: list[_Turn]
    turns: list[_Turn]  # of user and assistant

    def blocks(self) -> list[tuple[str, Path, Object]]:
        """Every block with the initial of who says it; `r` is the content of a tool's result."""
        said = [("s", path, block) for path, block in members(self.body.get("system"), ("system",))]
        for turn in self.messages:
            for path, block in turn.blocks:
                said.append((_INITIALS.get(turn.role, ""), path, block))
                if block.get("type") == "tool_result":
                    said += [("r", *part) for part in members(block.get("content"), (*path, "content"))]
        return said


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """`model` overrides the body's; `version` is the `anthropic-version` header, where known."""
    if not isinstance(body, dict):
        return [_found("body", (), "Input should be a valid dictionary")]
    name = model or text_of(body.get("model"))
    removed: Level | None = "warning" if version is None else "error" if version >= "2026-10-21" else None
    messages = [_turn(path, message) for path, message in members(body.get("messages"), ("messages",))]
    turns: list[_Turn] = []
    for message in messages:
        if message.role == "system":
            continue
        if turns and turns[-1].role == message.role:
            turns[-1].blocks.extend(message.blocks)
        else:
            turns.append(message._replace(blocks=[*message.blocks]))
    tools = members(body.get("tools"), ("tools",))
    request = _Request(body, name, model_kind(name), removed, tools, messages, turns)
    return [finding for rule in _RULES for finding in rule(request)]


def _turn(path: Path, message: Object) -> _Turn:
    content, at = message.get("content"), (*path, "content")
    whole: list[tuple[Path, Object]] = [(at, {"type": "text", "text": content})]
    blocks = whole if isinstance(content, str) and content else members(content, at)
    return _Turn(text_of(message.get("role")), path, blocks)


def _shapes(request: _Request) -> Findings:
    yield from check_fields(request.body)
    yield from check_settings(request.body, request.kind[1], request.removed)
    yield from check_output(request.body, request.kind)
    for path, tool in request.tools:
        yield from check_tool(path, tool)
    for role, path, block in request.blocks():
        yield from check_block(role, path, block)
        if request.removed:
            yield from check_removed(role, path, block, request.removed)


# ---- messages


def _messages(request: _Request) -> Findings:
    listed, last = request.body.get("messages"), request.messages[-1] if request.messages else _NOTHING
    if listed == [] and dig(request.body, "thread", "type") != "continue":
        yield _found("messages-empty", ("messages",), "messages: at least one message is required")
    if len(request.messages) > 100_000:
        yield _found("messages-limit", ("messages",), "messages: List should have at most 100000 items")
    for path, message in members(listed, ("messages",)):
        optional = message.get("role") == "assistant" and path == last.path
        if message.get("content") in ("", []) and not optional:
            said = "all messages must have non-empty content except for the optional final assistant message"
            yield _found("message-empty", path, f"{{at}}: {said}")


def _prefill(request: _Request) -> Findings:
    last = request.messages[-1] if request.messages else _NOTHING
    if last.role != "assistant" or any(text_of(block.get("type")) in UNFINISHED for _, block in last.blocks):
        return
    if refuses_prefill(request.model):
        said = "This model does not support assistant message prefill. "
        said += "The conversation must end with a user message."
        yield _found("prefill", last.path, said)
    if dig(request.body, "output_config", "format"):
        yield _found("format-prefill", last.path, "output_config.format is incompatible with message prefill")
    tail = text_of(last.blocks[-1][1].get("text")) if last.blocks else ""
    if tail != tail.rstrip():
        said = "messages: final assistant content cannot end with trailing whitespace"
        yield _found("prefill-whitespace", last.blocks[-1][0], said)


def _system_messages(request: _Request) -> Findings:
    """Neighbouring system messages are one section, so only its ends have to be in place."""
    around = [_NOTHING, *request.messages, _NOTHING]
    for before, turn, after in zip(around, request.messages, around[2:], strict=False):
        if turn.role != "system":
            continue
        end = text_of(before.blocks[-1][1].get("type")) if before.blocks else ""
        follows = before.role in ("user", "system") or end.endswith("_tool_result")
        if not follows or after.role not in ("assistant", "system", ""):
            said = "{at}: a `system` message must follow a `user` message or a server tool result, "
            said += "and be last or before an `assistant` message"
            yield _found("system-placement", turn.path, said)
        if refuses_system_messages(request.model):
            yield _found("system-model", turn.path, "role 'system' is not supported on this model")
        message = object_of(list_of(request.body.get("messages"))[int(turn.path[1])])
        if not message.get("content") and not message.get("output_config"):
            said = "{at}: a `system` message must have content or output_config"
            yield _found("system-empty", turn.path, said)


# ---- calls and results


def _call_ids(request: _Request) -> Findings:
    earlier: set[str] = set()
    for turn in request.turns:
        within: set[str] = set()
        for path, name in turn.ids("tool_use", "id") + turn.ids("server_tool_use", "id"):
            if name in earlier:
                # Recorded: an id that an earlier turn used is taken, whatever the text says.
                level: Level = "error" if name in within else "warning"
                yield _found("call-id-duplicate", path, "{at}: `tool_use` ids must be unique", level)
            within.add(name)
            earlier.add(name)


def _calls(request: _Request) -> Findings:
    for turn, following in zip(request.turns, [*request.turns[1:], _NOTHING], strict=False):
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
                yield _found(rule, places[0][0], said)


def _results(request: _Request) -> Findings:
    for turn, before in zip(request.turns, [_NOTHING, *request.turns], strict=False):
        calls = {name for _, name in before.ids("tool_use", "id")}
        seen: set[str] = set()
        for path, name in turn.ids("tool_result", "tool_use_id") if turn.role == "user" else []:
            if name in seen:
                said = "{at}: each tool_use must have a single result. "
                said += f"Found multiple `tool_result` blocks with id: {name}"
                yield _found("result-duplicate", path, said)
            elif name not in calls and dig(request.body, "thread", "type") != "continue":
                said = f"{{at}}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. "
                said += "Each `tool_result` block must have a corresponding `tool_use` block "
                said += "in the previous message."
                yield _found("result-orphan", path, said)
            seen.add(name)


def _server_calls(request: _Request) -> Findings:
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
                yield _found("server-result-missing", path, said)
            # The code execution tool's own calls are `bash_code_execution` and the like.
            elif call not in results and tag == "server_tool_use" and not any(n in name for n in provided):
                yield _found("server-tool-absent", path, f"{found}, but no `{name}` tool was provided")
        elif tag.endswith("_tool_result") and text_of(block.get("tool_use_id")) not in opened:
            caller = "mcp_tool_use" if tag == "mcp_tool_result" else "server_tool_use"
            answered = text_of(block.get("tool_use_id"))
            said = f"{{at}}: unexpected `tool_use_id` found in `{tag}` blocks: {answered}. "
            said += f"Each `{tag}` block must have a corresponding `{caller}` block before it."
            yield _found("server-result-orphan", path, said)


def _programmatic(request: _Request) -> Findings:
    pending = request.turns[-2].blocks if len(request.turns) > 1 and request.turns[-1].role == "user" else []
    for path, block in pending if not request.body.get("container") else []:
        if text_of(dig(block, "caller", "type")).startswith("code_execution"):
            said = "container_id is required when there are pending tool uses generated by code execution "
            yield _found("container-missing", path, said + "with tools.")


# ---- tools and caching


def _cache(request: _Request) -> Findings:
    tools = [("", path, tool) for path, tool in request.tools]
    marked = [(path, block) for _, path, block in tools + request.blocks() if block.get("cache_control")]
    count = len(marked) + bool(request.body.get("cache_control"))
    if count > 4:
        said = f"A maximum of 4 blocks with cache_control may be provided. Found {count}."
        yield _found("cache-limit", (*marked[-1][0], "cache_control"), said)
    short = False
    for path, block in marked:
        long = dig(block, "cache_control", "ttl") == "1h"
        if long and short:
            said = "{at}: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
            said += "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
            yield _found("cache-order", (*path, "cache_control", "ttl"), said)
        short = short or not long


def _tools(request: _Request) -> Findings:
    names: set[str] = set()
    for path, tool in request.tools:
        name, tag = text_of(tool.get("name")), text_of(tool.get("type"))
        key = name or f"{tag} {text_of(tool.get('mcp_server_name'))}"
        if key in names:
            yield _found("tool-names-unique", path, "tools: Tool names must be unique.")
        names.add(key)
        if tool.get("defer_loading") is True and tool.get("cache_control"):
            said = f"Tool '{name}' cannot have both defer_loading=true and cache_control set."
            yield _found("tool-deferred-cached", (*path, "cache_control"), said)
        if tool.get("allowed_domains") and tool.get("blocked_domains"):
            said = "{at}: only one of allowed_domains and blocked_domains may be given"
            yield _found("tool-domains", path, said)
        if request.kind == ("opus", (5, 5)) and re.match(r"computer_\d", tag):
            yield _found("tool-model", path, f"'{request.model}' does not support tool types: {tag}.")
    if request.tools and all(tool.get("defer_loading") is True for _, tool in request.tools):
        said = "At least one tool must have defer_loading=false. All tools cannot be deferred."
        yield _found("tools-all-deferred", ("tools",), said)
    if len([tool for _, tool in request.tools if tool.get("strict") is True]) > 20:
        yield _found("strict-limit", ("tools",), "Schema is too complex for compilation.")


def _toolsets(request: _Request) -> Findings:
    """A result says whose member it answers, as the call did; no words for this are known."""
    called: dict[str, object] = {}
    for _, path, block in request.blocks():
        if block.get("type") == "tool_use":
            called[text_of(block.get("id"))] = block.get("toolset_name")
        id = text_of(block.get("tool_use_id"))
        if block.get("type") == "tool_result" and id in called and block.get("toolset_name") != called[id]:
            said = f"{{at}}: `toolset_name` must be that of the `tool_use` block it answers: {called[id]!r}."
            yield _found("result-toolset", path, said)


def _references(request: _Request) -> Findings:
    """A tool that is referred to is one of the request's; those of MCP servers are not known here."""
    body, known = request.body, {text_of(tool.get("name")) for _, tool in request.tools}
    servers = {text_of(server.get("name")) for _, server in members(body.get("mcp_servers"), ())}
    for path, tool in request.tools:
        server = text_of(tool.get("mcp_server_name"))
        if tool.get("type") == "mcp_toolset" and server not in servers:
            said = f"{{at}}: MCP server '{server}' not found in mcp_servers"
            yield _found("mcp-server-unknown", (*path, "mcp_server_name"), said)
    referred: list[tuple[Path, object]] = []
    for _, path, block in request.blocks():
        known.add(text_of(dig(block, "tool", "definition", "name")))
        found = dig(block, "content", "tool_references")
        parts = [(path, block), *members(found, (*path, "content", "tool_references"))]
        referred += [(place, part.get("tool_name")) for place, part in parts if part.get("type") == "tool_reference"]
        if dig(block, "tool", "type") == "tool_reference":
            referred.append(((*path, "tool"), dig(block, "tool", "name")))
    for path, name in referred if not servers else []:
        if isinstance(name, str) and name not in known:
            said = f"Tool reference '{name}' not found in available tools"
            yield _found("tool-reference-unknown", path, said)
    name = text_of(dig(body, "tool_choice", "name"))
    if name and name not in known and not servers:
        yield _found("choice-unknown", ("tool_choice", "name"), f"Tool '{name}' not found in provided tools")


def _programmatic_callers(request: _Request) -> Findings:
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
                yield _found("mcp-programmatic", at, said)
            elif not has_code:
                said = "{at}: programmatic tool calling needs a code execution tool in `tools`"
                yield _found("callers-without-code", at, said, "warning")


# ---- settings


def _choice(request: _Request) -> Findings:
    choice, at = object_of(request.body.get("tool_choice")), ("tool_choice",)
    callers = {text_of(tool.get("name")): list_of(tool.get("allowed_callers")) for _, tool in request.tools}
    programmatic = any(caller != "direct" for named in callers.values() for caller in named)
    if programmatic and choice.get("disable_parallel_tool_use") is True:
        said = "disable_parallel_tool_use is not supported with programmatic tool calling"
        yield _found("choice-programmatic", at, f"{{at}}: {said}")
    if choice.get("type") not in ("any", "tool"):
        return
    if not request.tools and not any(turn.role == "system" for turn in request.messages):
        said = "{at}: tool_choice may only be specified while providing tools."
        yield _found("choice-without-tools", at, said)
    named = callers.get(text_of(choice.get("name")))
    if named and "direct" not in named:
        said = "{at}: a tool without `direct` in allowed_callers cannot be forced"
        yield _found("choice-not-direct", (*at, "name"), said)
    if dig(request.body, "thinking", "type") == "enabled":
        yield _found("choice-thinking", at, "Thinking may not be enabled when tool_choice forces tool use.")
    if refuses_forcing(request.model):
        yield _found("choice-model", at, '{at}: type "tool" and "any" are not supported for this model.')


def _thinking(request: _Request) -> Findings:
    """Newer servers go on without thinking instead of refusing; hence a warning."""
    called, answered = request.turns[-2:] if len(request.turns) > 1 else (_NOTHING, _NOTHING)
    start = text_of(called.blocks[0][1].get("type")) if called.blocks else "thinking"
    manual = dig(request.body, "thinking", "type") == "enabled"
    if manual and answered.ids("tool_result", "tool_use_id") and start not in ("thinking", "redacted_thinking"):
        said = f"{{at}}.type: Expected `thinking` or `redacted_thinking`, but found `{start}`. When "
        said += "`thinking` is enabled, a final `assistant` message must start with a thinking block."
        yield _found("thinking-first", called.blocks[0][0], said, "warning")


def _citations(request: _Request) -> Findings:
    for _, path, block in request.blocks() if dig(request.body, "output_config", "format") else []:
        if dig(block, "citations", "enabled") is True:
            yield _found("format-citations", path, "output_config.format is incompatible with citations")


_RULES = (
    _shapes, _messages, _prefill, _system_messages, _call_ids, _calls, _results, _toolsets, _server_calls,
    _programmatic, _programmatic_callers, _cache, _tools, _references, _choice, _thinking, _citations,
)  # fmt: skip
