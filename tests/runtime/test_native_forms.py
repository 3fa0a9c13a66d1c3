"""Vendors' own forms of shell, files and patches: declared where the model knows them, and mapped to our tools."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic.types
import google.genai.types
import openai.types.responses
import pytest
from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError

from tests.support.runtime.scripted_agent import ScriptedApprover, ScriptedModel, model_call, model_turn, text_turn
from tests.support.servers.asgi import serve_app
from toolwire import Agent, Policy, tool
from toolwire.canonical.content import Message, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool
from toolwire.codec.interface import Target
from toolwire.codec.models import claude, gpt
from toolwire.gateway.config import Config, ProviderSection
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.hosted_tools import CodeExecution, WebFetch, WebSearch
from toolwire.runtime.native_forms import EDIT_FORMS, PATCH_FORMS, SHELL_FORMS, NativeForm
from toolwire.runtime.tool import Tool
from toolwire.runtime.tools.apply_patch import apply_patch_tools
from toolwire.runtime.tools.read_file import read_file_tools
from toolwire.runtime.tools.workspace import Workspace
from toolwire.runtime.tools.write_file import write_file_tools
from toolwire.translation.hosted_support import knows_client_tool
from toolwire.upstream.simulator.app import Simulator

COMMANDS: list[str] = []


async def _run(arguments: Any, _context: Any) -> str:
    COMMANDS.append(arguments["command"])
    return f"ran {arguments['command']}"


SHELL = Tool(
    name="run_shell_command",
    run=_run,
    description="Runs a command in /work.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    native_forms=SHELL_FORMS,
)


@contextmanager
def agent_on(protocol: str, model: str, *tools: Tool, **options: Any) -> Iterator[Agent]:
    with serve_app(Simulator([protocol])) as address:
        config = Config(providers={"up": ProviderSection(protocol=protocol, base_url=address, api_key="k" * 20)})
        with Agent(f"up/{model}", tools=tools, config=config, **options) as agent:
            yield agent


@pytest.mark.parametrize(
    ("protocol", "model", "prompt", "command"),
    [
        ("openai-responses", "gpt-5.4", 'shell {"commands": ["git status", "ls"]}', "git status\nls"),
        ("anthropic", "claude-sonnet-5", 'bash {"command": "git status"}', "git status"),
        ("anthropic", "claude-sonnet-5", 'bash {"restart": true}', "true"),
        ("openai-responses", "gpt-4.1", 'run_shell_command {"command": "ls"}', "ls"),
        ("anthropic", "claude-3-5-haiku-latest", 'run_shell_command {"command": "ls"}', "ls"),
        ("openai-chat", "gpt-5.4", 'run_shell_command {"command": "ls"}', "ls"),
        ("gemini", "gemini-3-pro", 'run_shell_command {"command": "ls"}', "ls"),
        ("gemini-interactions", "gemini-3-pro", 'run_shell_command {"command": "ls"}', "ls"),
        ("ollama", "qwen3:8b", 'run_shell_command {"command": "ls"}', "ls"),
        ("openrouter", "openai/gpt-5.4", 'run_shell_command {"command": "ls"}', "ls"),
    ],
)
def test_shell_has_the_form_that_the_model_knows(protocol: str, model: str, prompt: str, command: str) -> None:
    COMMANDS.clear()
    approver = ScriptedApprover("yes")
    with agent_on(protocol, model, SHELL, approver=approver) as agent:
        run = agent.run(prompt)
    assert [command] == COMMANDS
    (asked,) = approver.requests
    assert asked.tool == "run_shell_command", "approvals are about our tool"
    (record,) = run.calls
    assert (record.tool, record.arguments) == ("run_shell_command", {"command": command})
    assert run.text.endswith(f"returned: ran {command}")
    call, result = (
        part for message in run.messages for part in message.parts if isinstance(part, ToolCall | ToolResult)
    )
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)
    assert (call.id, call.name) == (result.call_id, result.name), "the conversation keeps the vendor's names"


def test_policy_rules_apply_to_every_form() -> None:
    COMMANDS.clear()
    policy = Policy(allow=["run_shell_command"], deny=["run_shell_command(command=*rm *)"])
    with agent_on("openai-responses", "gpt-5.4", SHELL, policy=policy) as agent:
        run = agent.run('shell {"commands": ["ls", "rm -rf x"]}')
    assert COMMANDS == []
    assert run.calls[0].error == "denied"


class KnowingModel(ScriptedModel):
    """A model that knows all of its vendor's tools."""

    def knows_client_tool(self, tool: NativeTool) -> bool:
        return tool.protocol == "openai-responses"


def test_system_text_describes_what_a_vendors_tool_cannot() -> None:
    model = KnowingModel(text_turn("done"))
    Agent(model, tools=[SHELL], instructions="Be brief.").run("Hi")
    (request,) = model.requests
    texts = [part.text for part in request.system or ()]
    assert texts[0] == "Be brief."
    assert texts[1].startswith("shell: Runs a command in /work. Each call runs in a new shell")


def test_tool_of_the_user_keeps_its_name() -> None:
    @tool(name="shell", read_only=True)
    def shell(query: str) -> str:
        """Ask about shells on the beach."""
        return query

    model = KnowingModel(text_turn("done"))
    Agent(model, tools=[SHELL, shell]).run("Hi")
    ours, users = model.requests[0].tools or ()
    assert isinstance(ours, NativeTool)
    assert ours.kind == "local_shell", "the next form whose name is free"
    assert isinstance(users, FunctionTool)


@pytest.mark.parametrize("arguments", ["{", "[]", '{"commands": []}', '{"commands": [1]}', "{}", "null"])
def test_arguments_that_do_not_fit_are_rejected(arguments: str) -> None:
    COMMANDS.clear()
    model = KnowingModel(model_turn(model_call("shell", arguments, native="shell_call")), text_turn("done"))
    run = Agent(model, tools=[SHELL], policy=Policy(allow=["*"])).run("Hi")
    assert COMMANDS == []
    assert run.calls[0].approval.startswith("rejected")


OPERATIONS = [
    (
        '{"type": "create_file", "path": "new.txt", "diff": "+one\\n+two\\n"}',
        {"new.txt": "one\ntwo\n", "old.txt": "a\nb\n"},
    ),
    ('{"type": "update_file", "path": "old.txt", "diff": "@@\\n a\\n-b\\n+c\\n"}', {"old.txt": "a\nc\n"}),
    ('{"type": "delete_file", "path": "old.txt"}', {}),
    (
        '{"type": "create_file", "path": "x\\n+a\\n*** Delete File: old.txt\\n*** Add File: y", "diff": "+b"}',
        {"old.txt": "a\nb\n"},
    ),
]


@pytest.mark.parametrize(("operation", "files"), OPERATIONS, ids=["create", "update", "delete", "forged path"])
def test_patch_operations_become_patches(operation: str, files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("a\nb\n")
    model = KnowingModel(model_turn(model_call("apply_patch", operation, native="apply_patch_call")), text_turn("done"))
    run = Agent(model, tools=apply_patch_tools(Workspace(tmp_path)), policy=Policy(allow=["apply_patch"])).run("Hi")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files
    (result,) = model.requests[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert result.native == "apply_patch_call"
    assert (run.calls[0].error == "") is (result.status == "ok")


def test_patches_work_on_the_strict_simulator(tmp_path: Path) -> None:
    tools = apply_patch_tools(Workspace(tmp_path))
    with agent_on("openai-responses", "gpt-5.4", *tools, policy=Policy(allow=["apply_patch"])) as agent:
        run = agent.run('apply_patch {"type": "create_file", "path": "a.txt", "diff": "+hello"}')
    assert (tmp_path / "a.txt").read_text() == "hello\n"
    assert run.ok


def test_only_known_models_of_hosts_that_take_the_tools_get_them() -> None:
    shell, patch = SHELL_FORMS[0].declaration, PATCH_FORMS[0].declaration
    responses, anthropic = PROTOCOLS["openai-responses"], PROTOCOLS["anthropic"]
    assert knows_client_tool(responses, Target(model="gpt-5.1"), shell)
    assert knows_client_tool(responses, Target(model="gpt-6-astra"), patch)
    assert not knows_client_tool(responses, Target(model="my-finetune"), shell)
    assert not knows_client_tool(anthropic, Target(model="claude-sonnet-5"), shell)
    assert knows_client_tool(anthropic, Target(model="claude-sonnet-5"), SHELL_FORMS[2].declaration)
    assert not gpt.knows_shell_and_patches("gpt-5")
    assert not claude.knows_bash("claude-3-5-sonnet-latest")


def test_other_models_get_our_own_declarations(tmp_path: Path) -> None:
    model = ScriptedModel(text_turn("done"))
    Agent(model, tools=[SHELL, *apply_patch_tools(Workspace(tmp_path))]).run("Hi")
    assert [type(one) for one in model.requests[0].tools or ()] == [FunctionTool, FreeformTool]
    assert model.requests[0].system is None


@pytest.mark.parametrize(
    ("protocol", "model", "form", "declared"),
    [
        ("openai-responses", "gpt-5.4", SHELL_FORMS[0], {"type": "shell", "environment": {"type": "local"}}),
        ("openai-responses", "gpt-5.4", PATCH_FORMS[0], {"type": "apply_patch"}),
        ("openai-responses", "codex-mini-latest", SHELL_FORMS[1], {"type": "local_shell"}),
        ("anthropic", "claude-sonnet-5", SHELL_FORMS[2], {"type": "bash_20250124", "name": "bash"}),
        (
            "anthropic",
            "claude-sonnet-5",
            EDIT_FORMS[0],
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        ),
    ],
)
def test_vendor_gets_its_tool_and_not_a_function(
    protocol: str, model: str, form: NativeForm, declared: dict[str, Any]
) -> None:
    messages = (Message(role="user", parts=(Text(text="hi"),)),)
    request = Request(origin="", model=model, messages=messages, tools=(form.declaration,))
    encoded = PROTOCOLS[protocol].encode_request(request, Target(model=model))
    assert json.loads(encoded.to_bytes())["tools"] == [declared]


EDITOR = "str_replace_based_edit_tool"
EDITS: list[tuple[dict[str, Any], dict[str, Any], str, dict[str, Any]]] = [
    # A command of the editor, and the same call of our tool: its name and arguments.
    (
        {"command": "view", "path": "old.txt"},
        {},
        "read_file",
        {"absolute_path": "old.txt", "line_numbers": True},
    ),
    (
        {"command": "view", "path": "old.txt", "view_range": [2, 3]},
        {},
        "read_file",
        {"absolute_path": "old.txt", "offset": 1, "limit": 2, "line_numbers": True},
    ),
    (
        {"command": "view", "path": "old.txt", "view_range": [2, -1]},
        {},
        "read_file",
        {"absolute_path": "old.txt", "offset": 1, "line_numbers": True},
    ),
    (
        {"command": "create", "path": "new.txt", "file_text": "x\n"},
        {"new.txt": "x\n"},
        "write_file",
        {"file_path": "new.txt", "content": "x\n"},
    ),
    (
        {"command": "str_replace", "path": "old.txt", "old_str": "b\n", "new_str": "B\n"},
        {"old.txt": "a\nB\nc\n"},
        "replace",
        {"file_path": "old.txt", "old_string": "b\n", "new_string": "B\n"},
    ),
    (
        {"command": "str_replace", "path": "old.txt", "old_str": "b\n"},
        {"old.txt": "a\nc\n"},
        "replace",
        {"file_path": "old.txt", "old_string": "b\n", "new_string": ""},
    ),
    (
        {"command": "insert", "path": "old.txt", "insert_line": 1, "insert_text": "new"},
        {"old.txt": "a\nnew\nb\nc\n"},
        "replace",
        {"file_path": "old.txt", "old_string": "", "new_string": "new", "after_line": 1},
    ),
    (
        {"command": "insert", "path": "old.txt", "insert_line": 0, "new_str": "new\n"},
        {"old.txt": "new\na\nb\nc\n"},
        "replace",
        {"file_path": "old.txt", "old_string": "", "new_string": "new\n", "after_line": 0},
    ),
]


def file_tools(folder: Path) -> list[Tool]:
    (folder / "old.txt").write_text("a\nb\nc\n")
    workspace = Workspace(folder)
    return [*read_file_tools(workspace), *write_file_tools(workspace)]


def files_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize(("command", "changed", "name", "arguments"), EDITS, ids=lambda value: str(value)[:60])
def test_commands_of_claudes_editor_become_calls_of_our_tools(
    command: dict[str, Any], changed: dict[str, str], name: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    approver = ScriptedApprover("yes")
    with agent_on("anthropic", "claude-sonnet-5", *file_tools(tmp_path), approver=approver) as agent:
        run = agent.run(f"{EDITOR} {json.dumps(command)}")
    (record,) = run.calls
    assert (record.tool, record.arguments, record.error) == (name, arguments, "")
    assert [asked.tool for asked in approver.requests] == ([] if name == "read_file" else [name])
    assert files_in(tmp_path) == {"old.txt": "a\nb\nc\n"} | changed
    call, result = (
        part for message in run.messages for part in message.parts if isinstance(part, ToolCall | ToolResult)
    )
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)
    assert (call.name, result.name) == (EDITOR, EDITOR), "the conversation keeps the vendor's names"


@pytest.mark.parametrize(
    ("protocol", "model"),
    [
        ("anthropic", "claude-3-7-sonnet-latest"),
        ("openai-chat", "gpt-5.4"),
        ("openai-responses", "gpt-5.4"),
        ("gemini", "gemini-3-pro"),
        ("gemini-interactions", "gemini-3-pro"),
        ("ollama", "qwen3:8b"),
        ("openrouter", "anthropic/claude-sonnet-5"),
    ],
)
def test_files_are_functions_elsewhere(protocol: str, model: str, tmp_path: Path) -> None:
    policy = Policy(allow=["replace"])
    arguments = {"file_path": "old.txt", "old_string": "", "new_string": "new", "after_line": 3}
    with agent_on(protocol, model, *file_tools(tmp_path), policy=policy) as agent:
        run = agent.run(f"replace {json.dumps(arguments)}")
    assert [(record.tool, record.error) for record in run.calls] == [("replace", "")]
    assert files_in(tmp_path) == {"old.txt": "a\nb\nc\nnew\n"}


class Claude(ScriptedModel):
    """A model that knows Anthropic's tools."""

    def knows_client_tool(self, tool: NativeTool) -> bool:
        return tool.protocol == "anthropic"


def test_editor_is_declared_once_and_described(tmp_path: Path) -> None:
    model = Claude(text_turn("done"))
    Agent(model, tools=file_tools(tmp_path)).run("Hi")
    (request,) = model.requests
    assert [one.name for one in request.tools or ()] == [EDITOR, "read_many_files", "view_image"]
    ((described,),) = [request.system or ()]
    lines = described.text.split("\n")
    assert [line.split(":")[0] for line in lines] == [
        f"{EDITOR} view",
        f"{EDITOR} create",
        f"{EDITOR} insert str_replace",
    ]
    assert str(tmp_path) in lines[0]


@pytest.mark.parametrize("missing", ["read_file", "write_file", "replace"])
@pytest.mark.parametrize("reason", ["absent", "denied"])
def test_editor_is_not_declared_without_all_of_its_tools(missing: str, reason: str, tmp_path: Path) -> None:
    tools = file_tools(tmp_path)
    model = Claude(text_turn("done"))
    if reason == "absent":
        Agent(model, tools=[tool for tool in tools if tool.name != missing]).run("Hi")
    else:
        Agent(model, tools=tools, policy=Policy(deny=[missing])).run("Hi")
    declared = {one.name for one in model.requests[0].tools or ()}
    assert declared == {tool.name for tool in tools} - {missing}


@pytest.mark.parametrize(
    "command",
    [
        {"command": "undo_edit", "path": "old.txt"},
        {"command": ["view"], "path": "old.txt"},
        {"path": "old.txt"},
        {"command": "view", "path": "old.txt", "view_range": [3, 2]},
        {"command": "view", "path": "old.txt", "view_range": [0, 2]},
        {"command": "create", "path": "old.txt"},
        {"command": "str_replace", "path": "old.txt", "old_str": "", "new_str": "x"},
        {"command": "insert", "path": "old.txt", "insert_line": 9, "insert_text": "x"},
        {"command": "insert", "path": "old.txt", "insert_line": -1, "insert_text": "x"},
        {"command": "str_replace", "path": "../old.txt", "old_str": "a", "new_str": "x"},
    ],
    ids=str,
)
def test_commands_that_do_not_fit_change_nothing(command: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    model = Claude(model_turn(model_call(EDITOR, json.dumps(command))), text_turn("done"))
    run = Agent(model, tools=file_tools(folder), policy=Policy(allow=["*"])).run("Hi")
    assert files_in(folder) == {"old.txt": "a\nb\nc\n"}
    assert [bool(record.error) for record in run.calls] == [True]


def test_rules_about_our_tools_hold_for_the_editor(tmp_path: Path) -> None:
    policy = Policy(allow=["*"], deny=["replace(file_path=*old*)"])
    with agent_on("anthropic", "claude-sonnet-5", *file_tools(tmp_path), policy=policy) as agent:
        command = {"command": "insert", "path": "old.txt", "insert_line": 0, "insert_text": "x"}
        run = agent.run(f"{EDITOR} {json.dumps(command)}")
    assert [record.error for record in run.calls] == ["denied"]
    assert files_in(tmp_path) == {"old.txt": "a\nb\nc\n"}


@pytest.mark.parametrize(
    ("action", "command"),
    [
        ({"command": ["git", "status"], "env": {}}, {"command": "git status"}),
        ({"command": ["echo", "a b;c"], "env": {}}, {"command": "echo 'a b;c'"}),
        ({"command": ["bash", "-lc", "ls && pwd"], "env": {}}, {"command": "ls && pwd"}),
        ({"command": ["sh", "-c", "ls"], "env": {"A": "b c"}}, {"command": "export A='b c'; ls"}),
        ({"command": ["ls"], "env": {}, "working_directory": "src"}, {"command": "ls", "directory": "src"}),
    ],
)
def test_codex_mini_gets_local_shell(action: dict[str, Any], command: dict[str, str]) -> None:
    COMMANDS.clear()
    shell = replace(SHELL, parameters={"type": "object", "properties": {"command": {"type": "string"}}})
    with agent_on("openai-responses", "codex-mini-latest", shell, policy=Policy(allow=["*"])) as agent:
        run = agent.run(f"local_shell {json.dumps({'type': 'exec', **action})}")
    assert run.calls[0].arguments == command
    assert [command["command"]] == COMMANDS
    call, result = (
        part for message in run.messages for part in message.parts if isinstance(part, ToolCall | ToolResult)
    )
    assert (call.native, result.native) == ("local_shell_call", "local_shell_call")


@pytest.mark.parametrize("action", [{"command": []}, {"command": ["ls", 1]}, {"command": ["ls"], "user": "root"}, {}])
def test_local_shell_of_another_form_is_rejected(action: dict[str, Any]) -> None:
    COMMANDS.clear()
    model = KnowingModel(
        model_turn(model_call("local_shell", json.dumps(action), native="local_shell_call")), text_turn("done")
    )
    tool = replace(SHELL, native_forms=SHELL_FORMS[1:])
    run = Agent(model, tools=[tool], policy=Policy(allow=["*"])).run("Hi")
    assert COMMANDS == []
    assert run.calls[0].approval.startswith("rejected")


def test_models_get_the_forms_that_their_vendor_documents() -> None:
    editor, local_shell = EDIT_FORMS[0].declaration, SHELL_FORMS[1].declaration
    responses, anthropic = PROTOCOLS["openai-responses"], PROTOCOLS["anthropic"]
    assert knows_client_tool(anthropic, Target(model="claude-opus-4-20250514"), editor)
    assert not knows_client_tool(anthropic, Target(model="claude-3-7-sonnet-latest"), editor)
    assert knows_client_tool(anthropic, Target(model="claude-3-7-sonnet-latest"), SHELL_FORMS[2].declaration)
    assert not knows_client_tool(anthropic, Target(model="unknown"), editor)
    assert knows_client_tool(responses, Target(model="codex-mini-latest"), local_shell)
    assert not knows_client_tool(responses, Target(model="gpt-5.4"), local_shell)
    assert not knows_client_tool(responses, Target(model="codex-mini-latest"), SHELL_FORMS[0].declaration)


TOOLS_OF_SDKS: dict[str, Any] = {
    "anthropic": TypeAdapter(anthropic.types.ToolUnionParam),
    "openai-responses": TypeAdapter(openai.types.responses.ToolParam),
    "gemini": TypeAdapter(google.genai.types.ToolDict),
}


@pytest.mark.parametrize("form", [*SHELL_FORMS, *PATCH_FORMS, *EDIT_FORMS], ids=lambda form: form.declaration.kind)
def test_declarations_are_those_of_the_vendors_sdk(form: NativeForm) -> None:
    body = json.loads(bytes(form.declaration.body))
    assert TOOLS_OF_SDKS[form.declaration.protocol].validate_python(body, extra="forbid") == body
    with pytest.raises(ValidationError):
        TOOLS_OF_SDKS[form.declaration.protocol].validate_python(body | {"type": "shell_19990101"}, extra="forbid")


HOSTED: list[tuple[str, str, WebSearch | WebFetch | CodeExecution]] = [
    ("anthropic", "claude-sonnet-5", WebSearch(max_uses=3, allowed_domains=("example.com",))),
    ("anthropic", "claude-sonnet-5", WebFetch(max_uses=3, blocked_domains=("example.com",))),
    ("anthropic", "claude-sonnet-5", CodeExecution()),
    ("openai-responses", "gpt-5.5", WebSearch(allowed_domains=("example.com",), location={"city": "Oslo"})),
    ("openai-responses", "gpt-5.5", CodeExecution()),
    ("gemini", "gemini-3-pro", WebSearch()),
    ("gemini", "gemini-3-pro", WebFetch()),
    ("gemini", "gemini-3-pro", CodeExecution()),
]


@pytest.mark.parametrize(("protocol", "model", "tool"), HOSTED)
def test_hosted_tools_are_those_of_the_vendors_sdk(
    protocol: str, model: str, tool: WebSearch | WebFetch | CodeExecution
) -> None:
    question = (Message(role="user", parts=(Text(text="Hi"),)),)
    native = tool.provider_tool().native
    assert native is not None
    request = Request(origin="", model=model, messages=question, tools=(native,))
    body = json.loads(PROTOCOLS[protocol].encode_request(request, Target(model=model)).to_bytes())
    (declared,) = body["tools"]
    snake_case = {re.sub(r"(?=[A-Z])", "_", name).lower(): value for name, value in declared.items()}
    assert TOOLS_OF_SDKS[protocol].validate_python(snake_case, extra="forbid") == snake_case
