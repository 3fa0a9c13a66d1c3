"""The declarations of the built-in tools: parameters, annotations and policy."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.support.runtime.tool_calls import NO_SANDBOX
from toolwire.canonical.tools import FreeformTool, FunctionTool
from toolwire.runtime.policy import Policy
from toolwire.runtime.tool import Tool
from toolwire.runtime.tools import built_in_tools

# Name: required parameters, and optional ones.
SHAPES = {
    "run_shell_command": (["command"], ["command", "directory", "description"]),
    "read_file": (["absolute_path"], ["absolute_path", "offset", "limit", "line_numbers"]),
    "read_many_files": (["paths"], ["paths", "include", "exclude"]),
    "write_file": (["file_path", "content"], ["file_path", "content"]),
    "replace": (
        ["file_path", "old_string", "new_string"],
        ["file_path", "old_string", "new_string", "expected_replacements", "after_line"],
    ),
    "search_file_content": (["pattern"], ["pattern", "path", "include", "max_matches"]),
    "list_directory": (["path"], ["path"]),
    "glob": (["pattern"], ["pattern", "path"]),
    "view_image": (["absolute_path"], ["absolute_path"]),
    "web_fetch": (["prompt"], ["prompt"]),
    "google_web_search": (["query"], ["query"]),
    "ask_user": (["question"], ["question", "choices"]),
}
READING = {"read_file", "read_many_files", "search_file_content", "list_directory", "glob", "view_image"}


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, Tool]:
    return {tool.name: tool for tool in built_in_tools(tmp_path, sandbox=NO_SANDBOX)}


def test_tool_names(tools: dict[str, Tool]) -> None:
    assert tools.keys() == {*SHAPES, "apply_patch"}
    assert all(tool.description and tool.source == "built-in" for tool in tools.values())


@pytest.mark.parametrize("name", SHAPES)
def test_tool_parameters(tools: dict[str, Tool], name: str) -> None:
    schema = tools[name].parameters
    assert (schema["required"], list(schema["properties"])) == SHAPES[name]
    assert schema["additionalProperties"] is False
    assert all(given["description"] for given in schema["properties"].values())
    jsonschema_rs.meta.validate(schema)
    assert isinstance(tools[name].declaration(), FunctionTool)


def test_apply_patch_is_a_grammar_tool(tools: dict[str, Tool]) -> None:
    declared = tools["apply_patch"].declaration()
    assert isinstance(declared, FreeformTool)
    assert declared.grammar is not None
    assert declared.grammar.syntax == "lark"


def validation_errors(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    return [error.message for error in jsonschema_rs.Draft202012Validator(schema).iter_errors(arguments)]


def test_read_file_with_file_path_suggests_absolute_path(tools: dict[str, Tool]) -> None:
    messages = validation_errors(tools["read_file"].parameters, {"file_path": "/abs/path/README.md"})
    assert any("absolute_path" in one and "required" in one for one in messages)
    assert any("file_path" in one and "unexpected" in one for one in messages)


def test_write_file_with_absolute_path_suggests_file_path(tools: dict[str, Tool]) -> None:
    messages = validation_errors(
        tools["write_file"].parameters, {"absolute_path": "/abs/path/NEW.txt", "content": "hello"}
    )
    assert any('"file_path" is a required property' in one for one in messages)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"absolute_path": "/a", "offset": -1}),
        ("read_file", {"absolute_path": "/a", "limit": 0}),
        ("read_file", {"absolute_path": 7}),
        ("read_many_files", {"paths": "/a"}),
        ("replace", {"file_path": "/a", "old_string": "b", "new_string": "c", "expected_replacements": 0}),
        ("search_file_content", {"pattern": "a", "max_matches": 0}),
        ("run_shell_command", {"command": ["ls"]}),
        ("run_shell_command", {"command": "ls", "env": {"A": "b"}}),
    ],
)
def test_invalid_arguments_are_rejected(tools: dict[str, Tool], name: str, arguments: dict[str, Any]) -> None:
    assert validation_errors(tools[name].parameters, arguments)


def test_only_reading_and_asking_need_no_rule(tools: dict[str, Tool]) -> None:
    arguments: dict[str, Any] = {
        "run_shell_command": {"command": "ls"},
        "read_many_files": {"paths": ["."]},
        "write_file": {"file_path": "a", "content": ""},
        "replace": {"file_path": "a", "old_string": "b", "new_string": "c"},
        "apply_patch": "*** Begin Patch\n*** Delete File: a\n*** End Patch",
        "read_file": {"absolute_path": "a"},
        "view_image": {"absolute_path": "a"},
        "list_directory": {"path": "."},
        "glob": {"pattern": "*"},
        "search_file_content": {"pattern": "a"},
        "web_fetch": {"prompt": "https://example.org"},
        "google_web_search": {"query": "a"},
        "ask_user": {"question": "a?"},
    }
    verdicts = {name: Policy().decide(tool, arguments[name]).verdict for name, tool in tools.items()}
    allowed = {*READING, "ask_user"}
    assert verdicts == {name: "allow" if name in allowed else "ask" for name in tools}


def test_annotations_of_tools(tools: dict[str, Tool]) -> None:
    annotations = {name: tool.annotations for name, tool in tools.items()}
    assert {name for name, one in annotations.items() if one.read_only} == {
        *READING,
        "web_fetch",
        "google_web_search",
        "ask_user",
    }
    assert {name for name, one in annotations.items() if one.destructive} == {
        "run_shell_command",
        "write_file",
        "replace",
        "apply_patch",
    }
    assert {name for name, one in annotations.items() if one.open_world} == {
        "run_shell_command",
        "web_fetch",
        "google_web_search",
    }
    assert not annotations["run_shell_command"].idempotent


def test_resources_of_a_call_are_resolved_paths(tools: dict[str, Tool], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    expected = frozenset({str(tmp_path.resolve() / "sub" / "a")})
    for path in ("sub/a", "./sub/../sub/a", "link/a", f"{tmp_path}/sub/a"):
        assert tools["write_file"].resources({"file_path": path, "content": ""}) == expected
        assert tools["replace"].resources({"file_path": path, "old_string": "", "new_string": ""}) == expected
        assert tools["read_file"].resources({"absolute_path": path}) == expected
    patch = "*** Begin Patch\n*** Update File: link/a\n*** Move to: b\n*** End Patch"
    assert tools["apply_patch"].resources(patch) == expected | {str(tmp_path.resolve() / "b")}
    assert tools["run_shell_command"].resources({"command": "ls"}) is None


@pytest.mark.parametrize("path", ["sub/../../secret/a", "link/a", "sub/./../../secret/a"])
def test_rules_can_not_be_bypassed_by_dots_and_links(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "secret").mkdir()
    (root / "link").symlink_to("secret")
    write = next(tool for tool in built_in_tools(root, sandbox=NO_SANDBOX) if tool.name == "write_file")
    allowing = Policy(allow=[f"write_file(file_path={root.resolve()}/sub/*)", "write_file(file_path=sub/*)"])
    assert allowing.decide(write, {"file_path": f"{root}/sub/a", "content": ""}).verdict == "allow"
    assert allowing.decide(write, {"file_path": f"{root}/{path}", "content": ""}).verdict == "ask"
    denying = Policy(allow=["write_file"], deny=["write_file(file_path=*/secret/*)"])
    assert denying.decide(write, {"file_path": f"{root}/{path}", "content": ""}).verdict == "deny"


@pytest.mark.parametrize("path", ["sub/a", "./sub/a", "other/../sub/a", "link/a", "{root}/sub/a", "{root}/./link/a"])
def test_rules_may_use_paths_relative_to_the_workspace(tmp_path: Path, path: str) -> None:
    for name in ("sub", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("sub")
    tools = {tool.name: tool for tool in built_in_tools(tmp_path, sandbox=NO_SANDBOX)}
    given = {"file_path": path.format(root=tmp_path), "content": ""}
    denying, allowing = Policy(allow=["*"], deny=["*(file_path=sub/*)"]), Policy(allow=["*(file_path=sub/*)"])
    assert denying.decide(tools["write_file"], given).verdict == "deny"
    assert allowing.decide(tools["write_file"], given).verdict == "allow"
    assert allowing.decide(tools["write_file"], given | {"file_path": "other/a"}).verdict == "ask"
    patch = f"*** Begin Patch\n*** Delete File: {given['file_path']}\n*** End Patch"
    assert denying.decide(tools["apply_patch"], patch).verdict == "deny"


def test_file_rules_apply_to_patches_and_read_many_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "key.pem").write_text("")
    tools = {tool.name: tool for tool in built_in_tools(tmp_path, sandbox=NO_SANDBOX)}
    policy = Policy(allow=["apply_patch"], deny=["apply_patch(file_path=*.pem)", "read_many_files(paths=*.pem)"])
    patch = "*** Begin Patch\n*** Add File: {}\n+a\n*** End Patch"
    assert policy.decide(tools["apply_patch"], patch.format("b.py")).verdict == "allow"
    assert policy.decide(tools["apply_patch"], patch.format("./x/../b.pem")).verdict == "deny"
    assert policy.decide(tools["read_many_files"], {"paths": ["*.py"]}).verdict == "allow"
    assert policy.decide(tools["read_many_files"], {"paths": ["*"]}).verdict == "deny"
    assert policy.decide(tools["read_many_files"], {"paths": ["."]}).verdict == "deny"
