"""`make test-agents`: run real agents through the gateway on every upstream; print and save the table."""

import sys
from pathlib import Path

import click

from tests.agents.agent_runs import RUNS
from tests.agents.execution import run_agent
from tests.agents.installation import install_agents, versions
from tests.agents.page import PAGE, as_page
from toolwire.protocols import PROTOCOLS


@click.command()
@click.option(
    "--cache", type=click.Path(path_type=Path), required=True, help="Folder in which the agents are installed."
)
@click.option("--run", "wanted", multiple=True, help="Run only those whose name contains this text.")
@click.option(
    "--upstream", "upstreams", multiple=True, type=click.Choice(list(PROTOCOLS)), help="Run only on these upstreams."
)
@click.option("--record", type=click.Path(path_type=Path), help="Folder in which to write every exchange.")
def main(cache: Path, wanted: tuple[str, ...], upstreams: tuple[str, ...], record: Path | None) -> None:
    path = install_agents(cache.resolve())
    cells = []
    for run in RUNS:
        if wanted and not any(text in run.name for text in wanted):
            continue
        for upstream in upstreams or PROTOCOLS:
            folder = None if record is None else record / f"{run.name}-{upstream}".replace(" ", "_")
            cell = run_agent(run, upstream, path, folder)
            cells.append(cell)
            result = "; ".join(cell.faults) or "done"
            click.echo(f"{run.name:40} {upstream:20} {cell.seconds:5.1f} s  {result}")
    page = as_page(cells, versions(cache))
    click.echo(page)
    if not wanted and not upstreams:
        PAGE.write_text(page, encoding="utf-8")
    sys.exit(any(cell.faults for cell in cells))


if __name__ == "__main__":
    main()
