"""`make test-agents`: run real agents through the gateway on every upstream; print and save the tables."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tests.agents.agent_runs import RUNS, TEXT_CALL_RUNS, TEXT_CALL_UPSTREAMS, AgentRun
from tests.agents.execution import TIMEOUT_SECONDS, Cell, run_agent
from tests.agents.installation import install_agents, versions
from tests.agents.page import PAGE, text_call_section, upstream_section, write_page
from toolwire.protocols import PROTOCOLS


@click.command()
@click.option(
    "--cache", type=click.Path(path_type=Path), required=True, help="Folder in which the agents are installed."
)
@click.option("--run", "wanted", multiple=True, help="Run only those whose name contains this text.")
@click.option(
    "--upstream", "upstreams", multiple=True, type=click.Choice(list(PROTOCOLS)), help="Run only on these upstreams."
)
@click.option("--table", type=click.Choice(["upstreams", "text-calls"]), help="Run only the agents of this table.")
@click.option("--timeout", default=TIMEOUT_SECONDS, show_default=True, help="Seconds for one agent.")
@click.option("--record", type=click.Path(path_type=Path), help="Folder in which to write every exchange.")
def main(
    *,
    cache: Path,
    wanted: tuple[str, ...],
    upstreams: tuple[str, ...],
    table: str | None,
    timeout: int,
    record: Path | None,
) -> None:
    """Run the agents, and write the page; a table that is not run is left as it is."""
    path = install_agents(cache.resolve())
    cells: list[Cell] = []
    for run, upstream in _selected_runs(wanted, upstreams, table):
        column = upstream if run.dialect is None else f"{upstream} {run.dialect}"
        folder = None if record is None else record / f"{run.name}-{column}".replace(" ", "_")
        cell = run_agent(run, upstream, path, folder, timeout)
        cells.append(cell)
        click.echo(f"{run.name:40} {column:20} {cell.seconds:5.1f} s  {'; '.join(cell.faults) or 'done'}")
    structured = [cell for cell in cells if cell.run.dialect is None]
    written = [cell for cell in cells if cell.run.dialect is not None]
    sections = [
        *([upstream_section(structured, versions(cache))] if structured else []),
        *([text_call_section(written, versions(cache))] if written else []),
    ]
    click.echo("\n".join(sections))
    if not wanted and not upstreams:
        write_page(PAGE, sections)
    sys.exit(any(cell.faults for cell in cells))


def _selected_runs(
    wanted: tuple[str, ...], upstreams: tuple[str, ...], table: str | None
) -> Iterator[tuple[AgentRun, str]]:
    """Yield the runs of the tables, each with its upstream."""
    for name, runs, supported in (
        ("upstreams", RUNS, tuple(PROTOCOLS)),
        ("text-calls", TEXT_CALL_RUNS, TEXT_CALL_UPSTREAMS),
    ):
        for run in runs if table in (None, name) else ():
            if not wanted or any(text in run.name for text in wanted):
                yield from [(run, upstream) for upstream in supported if not upstreams or upstream in upstreams]


if __name__ == "__main__":
    main()
