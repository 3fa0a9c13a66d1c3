"""`make test-mcp`: the official conformance suite for both protocol versions, and third-party servers."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import click

from tests.mcp_conformance.installation import SERVERS, SUITE, install_suite, version
from tests.mcp_conformance.page import PAGE, render_page, unexpected_results
from tests.mcp_conformance.suite import VERSIONS, Outcome, as_client, as_server
from tests.mcp_conformance.third_party_servers import check_server, in_agents
from tests.mcp_conformance.upstreams import on_every_upstream
from toolwire.gateway.providers.known_providers import KEY_VARIABLES


def report_line(outcome: Outcome) -> bool:
    """Print the result of a suite run; return False if a scenario has an unexpected result."""
    good = [scenario for scenario in outcome.required if scenario.good]
    checks = sum(scenario.passed for scenario in outcome.required)
    click.echo(
        f"{outcome.version} {outcome.role}: {len(good)} of {len(outcome.required)} required scenarios, {checks} checks"
    )
    problems = unexpected_results(outcome) or ([] if outcome.required else ["no scenarios were run"])
    for problem in problems:
        click.echo(f"  {problem}")
    if problems:
        click.echo(outcome.output)
    return not problems


@click.command()
@click.option("--cache", type=click.Path(path_type=Path), required=True, help="Where the suite is installed.")
def main(cache: Path) -> None:
    cache = cache.resolve()
    path = install_suite(cache)
    for variable in KEY_VARIABLES.values():
        os.environ.pop(variable, None)  # the agents here have simulated models
    succeeded = True
    with tempfile.TemporaryDirectory() as folder:
        click.echo(f"{SUITE} {version(cache, SUITE)}")
        outcomes = [
            run(cache, path, mcp_version, Path(folder)) for mcp_version in VERSIONS for run in (as_client, as_server)
        ]
        for outcome in outcomes:
            succeeded &= report_line(outcome)
        PAGE.write_text(render_page(f"{SUITE} {version(cache, SUITE)}", outcomes), encoding="utf-8")
        for package in SERVERS:
            click.echo(f"{package} {version(cache, package)}")
            for name, failure in asyncio.run(check_server(cache, path, package, Path(folder))):
                click.echo(f"  {name}: {failure or 'done'}")
                succeeded &= not failure
        ran = asyncio.run(in_agents(cache, path, Path(folder)))
        for name, failure in [*ran, *on_every_upstream(cache, path, Path(folder))]:
            click.echo(f"  {name}: {failure or 'done'}")
            succeeded &= not failure
    sys.exit(not succeeded)


if __name__ == "__main__":
    main()
