"""Validate Anthropic requests as the provider would judge them, with its own error messages where they are known."""

import re
from typing import NamedTuple

from toolwire.codec.models import claude
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
    check_block,
    check_fields,
    check_output,
    check_removed,
    check_settings,
    check_tool,
)

_ROLE_INITIALS = {"user": "u", "assistant": "a", "system": "s"}
_finding = ERROR_WORDING.finding


class _Turn(NamedTuple):
    """Consecutive messages of one role, which the server merges into one."""

    role: str
    path: JsonPath
    blocks: list[tuple[JsonPath, JsonObject]]

    def ids(self, tag: str, name: str) -> list[tuple[JsonPath, str]]:
        """Return the ids in field `name` of all blocks of type `tag`, each with its path."""
        return [(path, text_of(block.get(name))) for path, block in self.blocks if block.get("type") == tag]


_EMPTY_TURN = _Turn("", (), [])


class _Request(NamedTuple):
    """A parsed request body with everything that several rules need."""

    body: JsonObject
    model: str
    # Level of findings about fields that version 2026-10-21 removed; None if the request uses an older version.
    removal: Level | None
    tools: list[tuple[JsonPath, JsonObject]]
    messages: list[_Turn]
    turns: list[_Turn]  # user and assistant turns, merged by role

    def blocks(self) -> list[tuple[str, JsonPath, JsonObject]]:
        """Return (role, path, block) for every block; role is its initial, or `r` inside a tool result."""
        blocks = [("s", path, block) for path, block in object_items(self.body.get("system"), ("system",))]
        for turn in self.messages:
            for path, block in turn.blocks:
                blocks.append((_ROLE_INITIALS.get(turn.role, ""), path, block))
                if block.get("type") == "tool_result":
                    blocks += [("r", *part) for part in object_items(block.get("content"), (*path, "content"))]
        return blocks


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """Check a request body against every rule.

    `model` overrides the body's model. `version` is the `anthropic-version` header, None if unknown.
    """
    if not isinstance(body, dict):
        return [_finding("body", (), "Input should be a valid dictionary")]
    name = model or text_of(body.get("model"))
    removal: Level | None = "warning" if version is None else "error" if version >= "2026-10-21" else None
    messages = [_read_turn(path, message) for path, message in object_items(body.get("messages"), ("messages",))]
    tools = object_items(body.get("tools"), ("tools",))
    request = _Request(body, name, removal, tools, messages, _merge_turns(messages))
    return [finding for rule in _RULES for finding in rule(request)]


def _merge_turns(messages: list[_Turn]) -> list[_Turn]:
    """Merge consecutive messages of one role, leaving out system messages."""
    turns: list[_Turn] = []
    for message in messages:
        if message.role == "system":
            continue
        if turns and turns[-1].role == message.role:
            turns[-1].blocks.extend(message.blocks)
        else:
            turns.append(message._replace(blocks=[*message.blocks]))
    return turns


def _read_turn(path: JsonPath, message: JsonObject) -> _Turn:
    """Read one message as a turn; string content becomes one text block."""
    content, at = message.get("content"), (*path, "content")
    text_block: list[tuple[JsonPath, JsonObject]] = [(at, {"type": "text", "text": content})]
    blocks = text_block if isinstance(content, str) and content else object_items(content, at)
    return _Turn(text_of(message.get("role")), path, blocks)


def _check_shapes(request: _Request) -> Findings:
    """Check each field, setting, tool and block by itself."""
    yield from check_fields(request.body)
    model = claude.claude_info(request.model)
    yield from check_settings(request.body, model, request.removal)
    yield from check_output(request.body, model)
    for path, tool in request.tools:
        yield from check_tool(path, tool)
    for role, path, block in request.blocks():
        yield from check_block(role, path, block)
        if request.removal:
            yield from check_removed(role, path, block, request.removal)


# ---- messages


def _check_messages(request: _Request) -> Findings:
    """Check that the list of messages is neither empty nor too long, and that none is empty."""
    message_list, last = request.body.get("messages"), request.messages[-1] if request.messages else _EMPTY_TURN
    if message_list == [] and value_at(request.body, "thread", "type") != "continue":
        yield _finding("messages-empty", ("messages",), "messages: at least one message is required")
    if len(request.messages) > 100_000:
        yield _finding("messages-limit", ("messages",), "messages: List should have at most 100000 items")
    for path, message in object_items(message_list, ("messages",)):
        optional = message.get("role") == "assistant" and path == last.path
        if message.get("content") in ("", []) and not optional:
            text = "all messages must have non-empty content except for the optional final assistant message"
            yield _finding("message-empty", path, f"{{at}}: {text}")


def _check_prefill(request: _Request) -> Findings:
    """Check a trailing assistant message, which the model is meant to continue (prefill)."""
    last = request.messages[-1] if request.messages else _EMPTY_TURN
    if last.role != "assistant" or any(text_of(block.get("type")) in UNFINISHED_BLOCKS for _, block in last.blocks):
        return
    if claude.refuses_prefill(request.model):
        message = "This model does not support assistant message prefill. "
        message += "The conversation must end with a user message."
        yield _finding("prefill", last.path, message)
    if value_at(request.body, "output_config", "format"):
        yield _finding("format-prefill", last.path, "output_config.format is incompatible with message prefill")
    tail = text_of(last.blocks[-1][1].get("text")) if last.blocks else ""
    if tail != tail.rstrip():
        message = "messages: final assistant content cannot end with trailing whitespace"
        yield _finding("prefill-whitespace", last.blocks[-1][0], message)


def _check_system_messages(request: _Request) -> Findings:
    """Check position and content of system messages; adjacent ones count as one."""
    padded = [_EMPTY_TURN, *request.messages, _EMPTY_TURN]
    for before, turn, after in zip(padded, request.messages, padded[2:], strict=False):
        if turn.role != "system":
            continue
        previous_tag = text_of(before.blocks[-1][1].get("type")) if before.blocks else ""
        follows_user = before.role in ("user", "system") or previous_tag.endswith("_tool_result")
        if not follows_user or after.role not in ("assistant", "system", ""):
            text = "{at}: a `system` message must follow a `user` message or a server tool result, "
            text += "and be last or before an `assistant` message"
            yield _finding("system-placement", turn.path, text)
        if claude.refuses_system_messages(request.model):
            yield _finding("system-model", turn.path, "role 'system' is not supported on this model")
        message = object_of(list_of(request.body.get("messages"))[int(turn.path[1])])
        if not message.get("content") and not message.get("output_config"):
            text = "{at}: a `system` message must have content or output_config"
            yield _finding("system-empty", turn.path, text)


# ---- calls and results


def _check_call_ids(request: _Request) -> Findings:
    """Check that the ids of tool calls are unique."""
    earlier_ids: set[str] = set()
    for turn in request.turns:
        turn_ids: set[str] = set()
        for path, id in turn.ids("tool_use", "id") + turn.ids("server_tool_use", "id"):
            if id in earlier_ids:
                # Recorded traffic: the provider accepts an id that an earlier turn used.
                level: Level = "error" if id in turn_ids else "warning"
                yield _finding("call-id-duplicate", path, "{at}: `tool_use` ids must be unique", level)
            turn_ids.add(id)
            earlier_ids.add(id)


def _check_calls(request: _Request) -> Findings:
    """Check that the next turn starts with a `tool_result` for each `tool_use`."""
    for turn, following in zip(request.turns, [*request.turns[1:], _EMPTY_TURN], strict=False):
        calls, results = turn.ids("tool_use", "id"), following.ids("tool_result", "tool_use_id")
        answered_ids = {id for _, id in results}
        first_paths = {path for path, _ in following.blocks[: len(results)]}
        violations = {
            "result-missing": [(path[:2], id) for path, id in calls if id not in answered_ids],
            "result-not-first": [(path, id) for path, id in results if calls and path not in first_paths],
        }
        for rule, calls_found in violations.items():
            if calls_found:
                message = "{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                message += ", ".join(id for _, id in calls_found) + ". Each `tool_use` block must have "
                message += "a corresponding `tool_result` block in the next message."
                yield _finding(rule, calls_found[0][0], message)


def _check_results(request: _Request) -> Findings:
    """Check that each `tool_result` answers a call of the previous turn, and only once."""
    for turn, before in zip(request.turns, [_EMPTY_TURN, *request.turns], strict=False):
        call_ids = {id for _, id in before.ids("tool_use", "id")}
        answered_ids: set[str] = set()
        for path, id in turn.ids("tool_result", "tool_use_id") if turn.role == "user" else []:
            if id in answered_ids:
                message = "{at}: each tool_use must have a single result. "
                message += f"Found multiple `tool_result` blocks with id: {id}"
                yield _finding("result-duplicate", path, message)
            elif id not in call_ids and value_at(request.body, "thread", "type") != "continue":
                message = f"{{at}}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. "
                message += "Each `tool_result` block must have a corresponding `tool_use` block "
                message += "in the previous message."
                yield _finding("result-orphan", path, message)
            answered_ids.add(id)


def _check_server_calls(request: _Request) -> Findings:
    """Check that each server tool call has a later result, unless the turn is paused.

    In a paused turn (`pause_turn`) only tool results may follow the call.
    """
    blocks = [(turn.role, path, block) for turn in request.turns for path, block in turn.blocks]
    results: set[str] = set()
    last_user_index = 0
    for index, (role, _, block) in enumerate(blocks):
        if block.get("type") != "tool_result":
            results.add(text_of(block.get("tool_use_id")))
            last_user_index = index if role == "user" else last_user_index
    tool_names = {text_of(tool.get("name")) for _, tool in request.tools} - {""}
    call_ids: set[str] = set()
    for index, (_, path, block) in enumerate(blocks):
        tag = text_of(block.get("type"))
        if tag in ("server_tool_use", "mcp_tool_use"):
            call_id = text_of(block.get("id"))
            call_ids.add(call_id)
            if call_id not in results:
                yield from _check_unanswered_call(path, block, tool_names, is_paused=index >= last_user_index)
        elif tag.endswith("_tool_result") and text_of(block.get("tool_use_id")) not in call_ids:
            yield _orphan_server_result(path, block)


def _check_unanswered_call(path: JsonPath, block: JsonObject, tool_names: set[str], *, is_paused: bool) -> Findings:
    """Check a server tool call without a result, which is valid only in a paused turn."""
    name = text_of(block.get("name"))
    prefix = f"{{at}}: `{name}` tool use with id `{text_of(block.get('id'))}` was found"
    if not is_paused:
        message = f"{prefix} without a corresponding `{name}_tool_result` block"
        yield _finding("server-result-missing", path, message)
    # The code execution tool makes calls such as `bash_code_execution`.
    elif block.get("type") == "server_tool_use" and not any(tool_name in name for tool_name in tool_names):
        yield _finding("server-tool-absent", path, f"{prefix}, but no `{name}` tool was provided")


def _orphan_server_result(path: JsonPath, block: JsonObject) -> Finding:
    """Return the finding for a server tool result without a call before it."""
    tag = text_of(block.get("type"))
    call_tag = "mcp_tool_use" if tag == "mcp_tool_result" else "server_tool_use"
    message = f"{{at}}: unexpected `tool_use_id` found in `{tag}` blocks: {text_of(block.get('tool_use_id'))}. "
    message += f"Each `{tag}` block must have a corresponding `{call_tag}` block before it."
    return _finding("server-result-orphan", path, message)


def _check_programmatic_results(request: _Request) -> Findings:
    """Check that results for calls made by code execution come with their container."""
    pending = request.turns[-2].blocks if len(request.turns) > 1 and request.turns[-1].role == "user" else []
    for path, block in pending if not request.body.get("container") else []:
        if text_of(value_at(block, "caller", "type")).startswith("code_execution"):
            message = "container_id is required when there are pending tool uses generated by code execution "
            yield _finding("container-missing", path, message + "with tools.")


# ---- tools and caching


def _check_cache(request: _Request) -> Findings:
    """Check number and order of `cache_control` marks."""
    tools = [("", path, tool) for path, tool in request.tools]
    marked = [(path, block) for _, path, block in tools + request.blocks() if block.get("cache_control")]
    count = len(marked) + bool(request.body.get("cache_control"))
    if count > 4:
        message = f"A maximum of 4 blocks with cache_control may be provided. Found {count}."
        yield _finding("cache-limit", (*marked[-1][0], "cache_control"), message)
    has_short = False
    for path, block in marked:
        is_long = value_at(block, "cache_control", "ttl") == "1h"
        if is_long and has_short:
            message = "{at}: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
            message += "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
            yield _finding("cache-order", (*path, "cache_control", "ttl"), message)
        has_short = has_short or not is_long


def _check_tools(request: _Request) -> Findings:
    """Check the list of tools for duplicate names and conflicting fields."""
    names: set[str] = set()
    for path, tool in request.tools:
        name, tag = text_of(tool.get("name")), text_of(tool.get("type"))
        key = name or f"{tag} {text_of(tool.get('mcp_server_name'))}"
        if key in names:
            yield _finding("tool-names-unique", path, "tools: Tool names must be unique.")
        names.add(key)
        yield from _check_tool_conflicts(path, tool)
        if claude.model_version(request.model) == ("opus", (5, 5)) and re.match(r"computer_\d", tag):
            yield _finding("tool-model", path, f"'{request.model}' does not support tool types: {tag}.")
    if request.tools and all(tool.get("defer_loading") is True for _, tool in request.tools):
        message = "At least one tool must have defer_loading=false. All tools cannot be deferred."
        yield _finding("tools-all-deferred", ("tools",), message)
    if len([tool for _, tool in request.tools if tool.get("strict") is True]) > 20:
        yield _finding("strict-limit", ("tools",), "Schema is too complex for compilation.")


def _check_tool_conflicts(path: JsonPath, tool: JsonObject) -> Findings:
    """Check for fields of one tool that exclude each other."""
    if tool.get("defer_loading") is True and tool.get("cache_control"):
        message = f"Tool '{text_of(tool.get('name'))}' cannot have both defer_loading=true and cache_control set."
        yield _finding("tool-deferred-cached", (*path, "cache_control"), message)
    if tool.get("allowed_domains") and tool.get("blocked_domains"):
        message = "{at}: only one of allowed_domains and blocked_domains may be given"
        yield _finding("tool-domains", path, message)


def _check_toolsets(request: _Request) -> Findings:
    """Check that each result repeats the `toolset_name` of its call."""
    toolsets: dict[str, object] = {}
    for _, path, block in request.blocks():
        if block.get("type") == "tool_use":
            toolsets[text_of(block.get("id"))] = block.get("toolset_name")
        id = text_of(block.get("tool_use_id"))
        if block.get("type") == "tool_result" and id in toolsets and block.get("toolset_name") != toolsets[id]:
            message = f"{{at}}: `toolset_name` must be that of the `tool_use` block it answers: {toolsets[id]!r}."
            yield _finding("result-toolset", path, message)


def _check_references(request: _Request) -> Findings:
    """Check that references name declared tools and servers; the tools of MCP servers are unknown here."""
    servers = {text_of(server.get("name")) for _, server in object_items(request.body.get("mcp_servers"), ())}
    for path, tool in request.tools:
        server = text_of(tool.get("mcp_server_name"))
        if tool.get("type") == "mcp_toolset" and server not in servers:
            message = f"{{at}}: MCP server '{server}' not found in mcp_servers"
            yield _finding("mcp-server-unknown", (*path, "mcp_server_name"), message)
    if servers:
        return
    names = {text_of(tool.get("name")) for _, tool in request.tools}
    names |= {text_of(value_at(block, "tool", "definition", "name")) for _, _, block in request.blocks()}
    for path, name in _tool_references(request):
        if isinstance(name, str) and name not in names:
            yield _finding("tool-reference-unknown", path, f"Tool reference '{name}' not found in available tools")
    name = text_of(value_at(request.body, "tool_choice", "name"))
    if name and name not in names:
        yield _finding("choice-unknown", ("tool_choice", "name"), f"Tool '{name}' not found in provided tools")


def _tool_references(request: _Request) -> list[tuple[JsonPath, object]]:
    """Return the tool names that the blocks refer to, each with its path."""
    references: list[tuple[JsonPath, object]] = []
    for _, path, block in request.blocks():
        nested = value_at(block, "content", "tool_references")
        parts = [(path, block), *object_items(nested, (*path, "content", "tool_references"))]
        references += [(at, part.get("tool_name")) for at, part in parts if part.get("type") == "tool_reference"]
        if value_at(block, "tool", "type") == "tool_reference":
            references.append(((*path, "tool"), value_at(block, "tool", "name")))
    return references


def _check_programmatic_callers(request: _Request) -> Findings:
    """Check `allowed_callers`: programmatic calls need code execution, and MCP tools do not support them."""
    has_code = any(text_of(tool.get("type")).startswith("code_execution_") for _, tool in request.tools)
    for path, tool in request.tools:
        configs = object_of(tool.get("configs"))
        settings = [(path, tool), ((*path, "default_config"), object_of(tool.get("default_config")))]
        settings += [((*path, "configs", name), object_of(config)) for name, config in configs.items()]
        for setting_path, setting in settings:
            callers = [text_of(caller) for caller in list_of(setting.get("allowed_callers"))]
            if not any(caller.startswith("code_execution_") for caller in callers):
                continue
            at = (*setting_path, "allowed_callers")
            if tool.get("type") == "mcp_toolset":
                message = "{at}: MCP connector tools cannot be called programmatically"
                yield _finding("mcp-programmatic", at, message)
            elif not has_code:
                message = "{at}: programmatic tool calling needs a code execution tool in `tools`"
                yield _finding("callers-without-code", at, message, "warning")


# ---- settings


def _check_choice(request: _Request) -> Findings:
    """Check `tool_choice` against the tools, the thinking mode and the model."""
    choice, at = object_of(request.body.get("tool_choice")), ("tool_choice",)
    callers = {text_of(tool.get("name")): list_of(tool.get("allowed_callers")) for _, tool in request.tools}
    programmatic = any(caller != "direct" for allowed_callers in callers.values() for caller in allowed_callers)
    if programmatic and choice.get("disable_parallel_tool_use") is True:
        message = "disable_parallel_tool_use is not supported with programmatic tool calling"
        yield _finding("choice-programmatic", at, f"{{at}}: {message}")
    if choice.get("type") not in ("any", "tool"):
        return
    if not request.tools and not any(turn.role == "system" for turn in request.messages):
        message = "{at}: tool_choice may only be specified while providing tools."
        yield _finding("choice-without-tools", at, message)
    allowed_callers = callers.get(text_of(choice.get("name")))
    if allowed_callers and "direct" not in allowed_callers:
        message = "{at}: a tool without `direct` in allowed_callers cannot be forced"
        yield _finding("choice-not-direct", (*at, "name"), message)
    if value_at(request.body, "thinking", "type") == "enabled":
        yield _finding("choice-thinking", at, "Thinking may not be enabled when tool_choice forces tool use.")
    if claude.refuses_forced_choice(request.model):
        yield _finding("choice-model", at, '{at}: type "tool" and "any" are not supported for this model.')


def _check_thinking_blocks(request: _Request) -> Findings:
    """Warn if tool results answer an assistant turn that lacks the leading thinking block.

    With thinking enabled, older servers reject such a request; newer ones continue without thinking.
    """
    call_turn, result_turn = request.turns[-2:] if len(request.turns) > 1 else (_EMPTY_TURN, _EMPTY_TURN)
    first_tag = text_of(call_turn.blocks[0][1].get("type")) if call_turn.blocks else "thinking"
    is_enabled = value_at(request.body, "thinking", "type") == "enabled"
    if (
        is_enabled
        and result_turn.ids("tool_result", "tool_use_id")
        and first_tag not in ("thinking", "redacted_thinking")
    ):
        message = f"{{at}}.type: Expected `thinking` or `redacted_thinking`, but found `{first_tag}`. When "
        message += "`thinking` is enabled, a final `assistant` message must start with a thinking block."
        yield _finding("thinking-first", call_turn.blocks[0][0], message, "warning")


def _check_citations(request: _Request) -> Findings:
    """Check that citations and structured output are not combined."""
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
