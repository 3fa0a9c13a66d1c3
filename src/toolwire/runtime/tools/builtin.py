"""The built-in tools of a workspace."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolwire.installation import has_extra
from toolwire.runtime.sandbox.bubblewrap import Sandbox, detect_bubblewrap, private_paths
from toolwire.runtime.sandbox.process import CommandLimits
from toolwire.runtime.tool import Tool
from toolwire.runtime.tools.apply_patch import apply_patch_tools
from toolwire.runtime.tools.ask_user import ask_user_tools
from toolwire.runtime.tools.list_directory import list_directory_tools
from toolwire.runtime.tools.read_file import read_file_tools
from toolwire.runtime.tools.run_shell_command import ShellOptions, shell_tools
from toolwire.runtime.tools.search_files import find_ripgrep, search_files_tools
from toolwire.runtime.tools.web_fetch import FetchOptions, web_fetch_tools
from toolwire.runtime.tools.web_search import SearchBackend, web_search_tools
from toolwire.runtime.tools.workspace import Workspace
from toolwire.runtime.tools.write_file import write_file_tools

CONFIG_FILE_NAME = "toolwire.toml"


def built_in_tools(
    workspace: Path,
    *,
    hidden: Sequence[Path] = (),
    readable: Sequence[Path] = (),
    network: bool = False,
    limits: CommandLimits = CommandLimits(),  # noqa: B008 - immutable
    environment: Mapping[str, str] | None = None,
    fetchable: frozenset[str] = frozenset(),
    search: SearchBackend | None = None,
    protected: Sequence[Path] = (),
    sandbox: Sandbox | None = None,
) -> list[Tool]:
    """Return the built-in tools for a workspace. Those that read the web need the extra `web`.

    `hidden` paths are invisible to tools and commands, in addition to the secrets of the home directory. `readable`
    paths of the home directory are visible to commands, in addition to installed programs. `network` lets commands use
    the network. `environment` adds variables to the environment of commands. `fetchable` names hosts that may be
    fetched from although their address is private. `search` is the web search service. `protected` files are not
    written, in addition to `toolwire.toml`. `sandbox` is bubblewrap by default; if it does not work, a person must
    approve each command. With `NO_SANDBOX`, commands run without a sandbox.
    """
    has_web = has_extra("web")
    hidden_paths = (*private_paths(os.environ), *hidden)
    root = Workspace(workspace, hidden=hidden_paths, protected=protected, reserved_names=(CONFIG_FILE_NAME,))
    shell = ShellOptions(
        sandbox=detect_bubblewrap() if sandbox is None else sandbox,
        limits=limits,
        network=network,
        hidden=hidden_paths,
        readable=readable,
        protected=[root.root / CONFIG_FILE_NAME, *protected],
        environment=environment or {},
    )
    return [
        *shell_tools(root, shell),
        *read_file_tools(root),
        *write_file_tools(root),
        *apply_patch_tools(root),
        *search_files_tools(root, find_ripgrep()),
        *list_directory_tools(root),
        *(web_fetch_tools(FetchOptions(exempt_hosts=fetchable)) if has_web else []),
        *(web_search_tools(search) if has_web else []),
        *ask_user_tools(),
    ]
