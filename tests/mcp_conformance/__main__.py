"""`make test-mcp`: the official conformance suite for both protocol versions, and third-party servers."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import click

from tests.mcp_conformance.installation import SERVERS, SUITE, install_suite, version
from tests.mcp_conformance.suite import VERSIONS, Outcome, as_client, as_server
from tests.mcp_conformance.third_party_servers import check_server, in_agents
from tests.mcp_conformance.upstreams import on_every_upstream
from toolwire.gateway.providers.discovery import KEY_VARIABLES


def report_line(outcome: Outcome) -> bool:
    required, others = outcome.required, [one for one in outcome.scenarios if not one.required]
    good = [one for one in required if one.good]
    checks = sum(one.passed for one in required)
    click.echo(
        f"{outcome.version} {outcome.role}: {len(good)} of {len(required)} required scenarios, {checks} checks; "
        f"not required: {sum(one.good for one in others)} of {len(others)}"
    )
    for one in required:
        if not one.good:
            click.echo(f"  failed: {one.name} ({one.failed} of {one.passed + one.failed} checks)")
    right = outcome.succeeded and bool(required) and len(good) == len(required)
    if not right:
        click.echo(outcome.said)
    return right


@click.command()
@click.option("--cache", type=click.Path(path_type=Path), required=True, help="Where the suite is installed.")
def main(cache: Path) -> None:
    cache = cache.resolve()
    path = install_suite(cache)
    for variable in KEY_VARIABLES.values():
        os.environ.pop(variable, None)  # the agents here have simulated models
    right = True
    with tempfile.TemporaryDirectory() as folder:
        click.echo(f"{SUITE} {version(cache, SUITE)}")
        for one in VERSIONS:
            right &= report_line(as_client(cache, path, one, Path(folder)))
            right &= report_line(as_server(cache, path, one, Path(folder)))
        for package in SERVERS:
            click.echo(f"{package} {version(cache, package)}")
            for name, wrong in asyncio.run(check_server(cache, path, package, Path(folder))):
                click.echo(f"  {name}: {wrong or 'done'}")
                right &= not wrong
        ran = asyncio.run(in_agents(cache, path, Path(folder)))
        for name, wrong in [*ran, *on_every_upstream(cache, path, Path(folder))]:
            click.echo(f"  {name}: {wrong or 'done'}")
            right &= not wrong
    sys.exit(not right)


if __name__ == "__main__":
    main()
