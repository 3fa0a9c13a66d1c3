"""All the tools that come with toolwire, for one workspace."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolwire.runtime.sandbox.limits import Limits
from toolwire.runtime.sandbox.shell import Sandbox, bubblewrap, private_places
from toolwire.runtime.toolset import Tool

from .asking import asking_tools
from .listing import listing_tools
from .patching import patching_tools
from .reading import reading_tools
from .searching import ripgrep, searching_tools
from .shell import Shell, shell_tools
from .web_fetch import Fetching, fetching_tools
from .web_search import SearchBackend, search_tools
from .workspace import Workspace
from .writing import writing_tools

CONFIGURATION = "toolwire.toml"


def built_in(
    workspace: Path,
    *,
    hidden: Sequence[Path] = (),
    readable: Sequence[Path] = (),
    network: bool = False,
    limits: Limits = Limits(),  # noqa: B008 - it is frozen
    environment: Mapping[str, str] | None = None,
    fetchable: frozenset[str] = frozenset(),
    search: SearchBackend | None = None,
    protected: Sequence[Path] = (),
    sandbox: Sandbox | None = None,
) -> list[Tool]:
    """`hidden`: paths that no tool gives or takes, and no command sees; secrets of the home folder always are.
    `readable`: what commands see of the home folder beside programs. `network`: whether commands may use it.
    `environment`: variables that commands are given beside the harmless ones. `fetchable`: names of hosts that are
    fetched from though their address is private. `search` finds pages. `protected`: files that are not written, beside
    `toolwire.toml`. `sandbox` absent: bubblewrap; where it does not work, a person decides on each command. With
    `NO_SANDBOX` commands run without one."""
    unseen = (*private_places(os.environ), *hidden)
    root = Workspace(workspace, hidden=unseen, protected=protected, reserved=(CONFIGURATION,))
    shell = Shell(
        sandbox=bubblewrap() if sandbox is None else sandbox,
        limits=limits,
        network=network,
        hidden=unseen,
        readable=readable,
        protected=[root.root / CONFIGURATION, *protected],
        environment=environment or {},
    )
    return [
        *shell_tools(root, shell),
        *reading_tools(root),
        *writing_tools(root),
        *patching_tools(root),
        *searching_tools(root, ripgrep()),
        *listing_tools(root),
        *fetching_tools(Fetching(exempt=fetchable)),
        *search_tools(search),
        *asking_tools(),
    ]
