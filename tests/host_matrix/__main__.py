"""`make host-matrix`: send the requests of all agents to all hosts; print and save the table."""

import io
import sys
from contextlib import redirect_stderr

import click

from tests.host_matrix.cells import TARGETS, recordings_for, run_cells, serve_matrix
from tests.host_matrix.page import PAGE, render_page


@click.command()
@click.option("--host", "wanted", multiple=True, help="Only targets whose name contains this text.")
@click.option("--as", "dialect", help="Send the form of this host to all of them, such as compatible.")
def main(wanted: tuple[str, ...], dialect: str | None) -> None:
    cells = []
    with redirect_stderr(io.StringIO()), serve_matrix(dialect) as setup:
        for target in TARGETS:
            if wanted and not any(text in target.name for text in wanted):
                continue
            for recording in recordings_for(target):
                for cell in run_cells(setup, target, recording):
                    cells.append(cell)
                    faults = [cell.refusal, *cell.losses, *cell.unreported]
                    if any(faults):
                        click.echo(f"{target.name} {recording} {cell.turn}: {'; '.join(filter(None, faults))}")
    page = render_page(cells)
    click.echo(page)
    if not wanted and not dialect:
        PAGE.write_text(page, encoding="utf-8")
    sys.exit(any(not cell.accepted or cell.unreported for cell in cells))


if __name__ == "__main__":
    main()
