"""`toolwire work`: execute the runs that `toolwire ask --detach` and `Agent.run_detached` put into queues."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolwire.cli.inputs import BadInput, NumberOption, config_option, report_bad_input

if TYPE_CHECKING:
    from toolwire.agent import Agent
    from toolwire.gateway.config import Config
    from toolwire.journal.runs import RunStore
    from toolwire.runtime.calls.approval import Approver
    from toolwire.runtime.run.settings import RunMetadata
    from toolwire.worker import Worker

_FILE = click.Path(path_type=Path)
_RETRY_INTERVAL = 1.0  # seconds


@click.command("work", short_help="Execute detached runs.")
@click.option(
    "--agent", "agents", multiple=True, metavar="MODULE:NAME", help="An agent whose detached runs to execute."
)
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Another queue of `toolwire ask --detach` runs.")
@click.option(
    "--concurrency",
    cls=NumberOption,
    type=click.IntRange(1),
    default=4,
    metavar="N",
    help="Runs at the same time. Default: 4.",
)
@click.option(
    "--grace",
    cls=NumberOption,
    type=click.FloatRange(0),
    default=30.0,
    metavar="SECONDS",
    help="Time for turns under way after SIGTERM. Default: 30.",
)
@click.option("--once", is_flag=True, help="Stop when no run is left.")
@click.option("--no-sandbox", is_flag=True, help="Run commands without a sandbox, with all of your permissions.")
@config_option
@click.option("--journal", type=_FILE, metavar="FILE", help="Store of runs. Default: the user's, or state.url.")
def command(
    *, agents: tuple[str, ...], no_sandbox: bool, config_path: Path | None, journal: Path | None, **options: Any
) -> None:
    """Execute the runs of `toolwire ask --detach` on this machine, and those of your own agents.

    Any number of workers may share a store. Each holds its runs with leases: when it dies, another worker adopts them
    and continues where they stood. A call that was under way is in doubt, and not repeated. On SIGTERM, runs are left
    to other workers after their current turn.

    \b
    Examples:
      toolwire work
      toolwire work --agent support.agents:triage --concurrency 8
    """
    with report_bad_input():
        from toolwire.cli.agent_options import apply_sandbox_flag, open_runs
        from toolwire.gateway.config import load_config

        config = apply_sandbox_flag(load_config(config_path).config, _log, no_sandbox=no_sandbox)

        def open_agents() -> _Agents:
            """Open the store of runs, and import the agents. Their module may open stores of its own."""
            runs = open_runs(journal, config)
            try:
                return _Agents(runs, config, agents, has_config_option=config_path is not None)
            except BaseException:
                runs.close()
                raise

        opened = open_agents() if options["once"] else _wait_until_available(open_agents)
        try:
            sys.exit(_work(opened, has_journal_option=journal is not None, **options))
        finally:
            opened.runs.close()


def _wait_until_available(open_agents: "Callable[[], _Agents]") -> "_Agents":
    """Open the agents; retry while the store of runs is unavailable, since workers may start before its server."""
    from toolwire.journal.store import JournalUnavailable

    reason = ""
    while True:
        try:
            return open_agents()
        except JournalUnavailable as error:
            if str(error) != reason:
                reason = str(error)
                _log(f"waits for the store of runs: {reason}")
        time.sleep(_RETRY_INTERVAL)


def _work(agents: "_Agents", *, queues: tuple[str, ...], once: bool, has_journal_option: bool, **options: Any) -> int:
    """Execute runs until a signal or, with `once`, until none is left; return the exit code.

    The runs of an agent are in its own journal, unless the command names one.
    """
    import asyncio

    from toolwire.cli.agent_options import ask_queue
    from toolwire.worker import Worker

    stores = {_location(agents.runs): agents.runs}
    queues_by_store = {_location(agents.runs): [ask_queue(), *queues]}
    for agent in agents.named.values():
        store = agents.runs if has_journal_option or agent.runs is None else agent.runs
        stores.setdefault(_location(store), store)
        queues_by_store.setdefault(_location(store), []).append(f"agent:{agent.name}")

    async def serve() -> None:
        """Run a worker for each store in an event loop."""
        workers = [
            Worker(store, agents.open, queues_by_store[location], log=_log, **options)
            for location, store in stores.items()
        ]
        _stop_on_signals(workers)
        for location, names in queues_by_store.items():
            _log(f"executes the runs of {', '.join(names)} in {location}")
        await asyncio.gather(*[worker.drain() if once else worker.serve() for worker in workers])

    asyncio.run(serve())
    return 0


def _location(store: "RunStore") -> str:
    """Return the absolute path of a store, or its URL without credentials."""
    return store.name if store.path is None else str(store.path.resolve())


def _stop_on_signals(workers: "Sequence[Worker]") -> None:
    """Stop the workers on the first SIGTERM or SIGINT; the second one kills the process."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()

    def stop() -> None:
        """Stop the workers, and let the next signal kill the process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        for worker in workers:
            worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def _log(text: str) -> None:
    """Write a line to stderr."""
    click.echo(f"worker: {text}", err=True)


class _Agents:
    """The agents that this worker runs: those of modules, and those of `toolwire ask` jobs."""

    def __init__(
        self, runs: "RunStore", config: "Config", targets: tuple[str, ...], *, has_config_option: bool
    ) -> None:
        self.runs = runs
        self._config = config
        self._has_config_option = has_config_option
        self.named: Mapping[str, Agent[Any, Any]] = {
            agent.name: agent for agent in [_import_agent(target) for target in targets]
        }

    def open(self, metadata: "RunMetadata", approver: "Approver") -> "AbstractAsyncContextManager[Agent[Any, Any]]":
        """Return the agent of a run: one of a module, or one built from the options of `toolwire ask`."""
        agent = self.named.get(metadata.agent)
        return nullcontext(agent) if agent is not None else self._build_ask_agent(metadata, approver)

    def _build_ask_agent(self, metadata: "RunMetadata", approver: "Approver") -> "Agent":
        """Build the agent of a `toolwire ask` job."""
        from msgspec.structs import replace

        from toolwire.cli.agent_options import build_agent, decode_job, original_config, require_browser
        from toolwire.runtime.calls.approval import AutoApprover

        job = decode_job(metadata.facts)
        job = replace(job, model=job.model or metadata.model or None)
        if not Path(job.workspace).is_dir():
            raise BadInput(f"the workspace {job.workspace} does not exist on this machine")
        config = self._config
        if not self._has_config_option:
            config = replace(original_config(job, config), tools=config.tools)
        require_browser(job, config)
        return build_agent(job, config, approver=AutoApprover(approver) if job.yes else approver, runs=self.runs)


def _import_agent(target: str) -> "Agent[Any, Any]":
    """Import an agent by `MODULE:NAME`, from the current folder or an installed package."""
    import importlib

    from toolwire.agent import Agent

    module, colon, name = target.partition(":")
    if not colon:
        raise BadInput(f"--agent {target}: name a module and the agent in it, such as support.agents:triage")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        agent = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"--agent {target}: {error}") from None
    if not isinstance(agent, Agent):
        raise BadInput(f"--agent {target}: not an Agent")
    return agent
