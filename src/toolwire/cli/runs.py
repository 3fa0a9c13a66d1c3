"""`toolwire runs`: what agents did here: listed, shown, taken up again, replayed."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .arguments import BadInput, needing, refusing_bad_input
from .serve import USUAL

if TYPE_CHECKING:
    from toolwire.gateway.config import Config
    from toolwire.journal.runs import Runs
    from toolwire.runtime.approval import Answer

    from .story import Story

_Command = TypeVar("_Command", bound=Callable[..., None])
_FILE = click.Path(path_type=Path)
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_RUN = click.argument("run", metavar="RUN")


@click.group("runs", short_help="List, show, resume and replay what agents did.")
def command() -> None:
    """List, show, resume and replay the runs of `toolwire ask`.

    RUN is the id of a run, or how it begins if only one does, or `last`.
    """


def _with_journal(function: _Command) -> _Command:
    function = click.option("--config", "config_path", type=_FILE, metavar="FILE", help=f"Default: {USUAL}, if there.")(
        function
    )
    return click.option("--journal", type=_FILE, metavar="FILE", help="Where runs are kept. Default: the user's.")(
        function
    )


@command.command("list")
@click.option("-n", "--lines", type=click.IntRange(1), default=20, metavar="N", help="How many. Default: 20.")
@click.option("--workspace", type=_FOLDER, metavar="DIR", help="Only those of this folder.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@_with_journal
def list_(*, lines: int, workspace: Path | None, as_json: bool, journal: Path | None, config_path: Path | None) -> None:
    """List the latest runs, the newest first: id, when, how it stands, model, and how its prompt begins.

    \b
    Example:
      toolwire runs list -n 5
    """
    with _opened(journal, config_path) as (runs, config):
        from .story import headed, stories, summary

        for story in stories(runs, config, lines, workspace):
            click.echo(json.dumps(summary(story)) if as_json else headed(story))


@command.command("show")
@_RUN
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
@click.option("--pictures", type=_FILE, metavar="DIR", help="Write the pictures that the model saw there, with a page.")
@_with_journal
def show(*, run: str, as_json: bool, pictures: Path | None, journal: Path | None, config_path: Path | None) -> None:
    """Show a run: its turns, and of each call its arguments, who allowed it, how long it took and what it gave.

    Known keys, and what looks like one, are taken out.

    \b
    Example:
      toolwire runs show last
      toolwire runs show last --pictures /tmp/seen
    """
    with _opened(journal, config_path) as (runs, config):
        from .story import page, readable, story_of

        story = story_of(runs, config, run)
        if pictures is not None:
            from .pictures import write_pictures

            path, count = write_pictures(story, pictures)
            click.echo(f"{count} pictures: {path}")
            return
        if as_json:
            click.echo(json.dumps(readable(story), indent=2))
            return
        for line in page(story):
            click.echo(line)


@command.command("resume")
@_RUN
@click.option("--approve", multiple=True, metavar="CALL", help="Run this call, which waits for an approval.")
@click.option("--deny", multiple=True, metavar="CALL", help="Don't run this call, which waits for an approval.")
@click.option("--yes", is_flag=True, help="Answer every approval with yes. What is denied stays denied.")
@click.option("--no-sandbox", is_flag=True, help="Run commands without a sandbox, with all of your rights.")
@click.option("--max-turns", type=click.IntRange(1), metavar="N", help="Default: as it was started.")
@click.option("--json", "as_json", is_flag=True, help="Events as JSON lines on stdout, and nothing else.")
@_with_journal
def resume(*, run: str, as_json: bool, journal: Path | None, config_path: Path | None, **given: Any) -> None:
    """Go on with a run that was stopped, killed, or waits for an approval.

    What was done is not done again. A call that was under way when the run was killed is in doubt: it is said, to you
    and to the model, and not repeated. An approval counts for the call as `toolwire runs show` shows it, and no other.

    \b
    Exit codes: as for `toolwire ask`.

    \b
    Example:
      toolwire runs resume last --approve call_1
    """
    with _opened(journal, config_path) as (runs, config):
        sys.exit(_resumed(runs, config, run, as_json=as_json, named=config_path is not None, **given))


def _resumed(
    runs: "Runs",
    config: "Config",
    run: str,
    *,
    approve: tuple[str, ...],
    deny: tuple[str, ...],
    yes: bool,
    no_sandbox: bool,
    max_turns: int | None,
    as_json: bool,
    named: bool,
) -> int:
    from msgspec.structs import replace

    from .job import SIMULATED, agent_of, is_simulated, job_of, require_browser, without_sandbox
    from .person import Decided
    from .running import ANSWERED, conduct, person_of, view_of
    from .story import story_of

    story = story_of(runs, config, run)
    if story.state in ANSWERED:
        raise BadInput(f"the run {story.id} is over ({story.state}): go on with `toolwire ask --continue`")
    job = job_of(story.about.facts)
    job = replace(job, model=job.model or story.about.model, max_turns=max_turns or job.max_turns)
    if not named:
        config = _config_of(job.config, config)
    view = view_of(job.workspace, as_json=as_json)
    answers = _answers(story, approve, deny)
    if is_simulated(config):
        view.note(SIMULATED)
    if job.tools:
        config = without_sandbox(config, view.note, flag=no_sandbox)
    for id in story.in_doubt:
        view.note(f"in doubt: {id} was under way when the run ended; it is not run again")
    other = person_of(view, yes=yes, later=job.later or bool(answers))
    require_browser(job, config)
    agent = agent_of(job, config, person=Decided(answers, other), runs=runs)
    return conduct(agent, lambda one: one.resume(story.id), view, runs.path)


def _config_of(path: str | None, config: "Config") -> "Config":
    """The one that the run was started with."""
    from .job import config_of

    return config if path is None else config_of(Path(path))[0]


def _answers(story: "Story", approve: tuple[str, ...], deny: tuple[str, ...]) -> "dict[str, Answer]":
    """What was said of calls that wait, by what each answer is bound to."""
    waiting = {ask.call_id: ask for ask in story.waiting}
    for id in (*approve, *deny):
        if id not in waiting:
            raise BadInput(f"no call {id!r} waits for an approval; those that do: {', '.join(waiting) or 'none'}")
        if id in approve and id in deny:
            raise BadInput(f"{id} can't be both approved and denied")
    said: dict[str, Answer] = {waiting[id].binding: "yes" for id in approve}
    return said | {waiting[id].binding: "no" for id in deny}


@command.command("replay")
@_RUN
@click.option(
    "--tools",
    type=click.Choice(("recorded", "live")),
    default="recorded",
    help="What calls give: what they gave then, or what they give now. Default: recorded.",
)
@click.option("--workspace", type=_FOLDER, metavar="DIR", help="For live tools: another folder than the run's.")
@click.option("--yes", is_flag=True, help="For live tools: answer every approval with yes.")
@click.option("--no-sandbox", is_flag=True, help="For live tools: run commands without a sandbox.")
@_with_journal
def replay(*, run: str, journal: Path | None, config_path: Path | None, **given: Any) -> None:
    """Play what the model said again, and show which calls come to something else, field by field.

    No model is asked, and nothing is recorded. With --tools live the calls are run, under today's rules and approvals.
    Exit code 0: no difference. 1: there are some. 2: it can't be replayed.

    \b
    Example:
      toolwire runs replay last
      toolwire runs replay last --tools live --workspace /tmp/copy
    """
    with _opened(journal, config_path) as (runs, config):
        sys.exit(_replayed(runs, config, run, named=config_path is not None, **given))


def _replayed(
    runs: "Runs",
    config: "Config",
    run: str,
    *,
    tools: str,
    workspace: Path | None,
    yes: bool,
    no_sandbox: bool,
    named: bool,
) -> int:
    import os

    from msgspec.structs import replace

    from toolwire.runtime.replaying import PlayedModel, PlayedPerson, compared, played_tools

    from .job import agent_of, job_of, tools_of, without_sandbox
    from .running import conduct, person_of
    from .story import difference_lines, story_of
    from .view import Lines

    story = story_of(runs, config, run)
    job = job_of(story.about.facts)
    if not named:
        config = _config_of(job.config, config)
    live = tools == "live"
    if workspace is not None:
        job = replace(job, workspace=os.path.realpath(workspace))
    view = Lines(out=sys.stderr, workspace=job.workspace)
    if live and job.tools:
        config = without_sandbox(config, view.note, flag=no_sandbox)
    person = person_of(view, yes=yes, later=False) if live else PlayedPerson(story.turns)
    offered = tools_of(job, config)
    asked = story.about.messages
    agent = agent_of(
        job,
        config,
        person=person,
        model=PlayedModel(story.about.model, story.turns),
        tools=offered if live else played_tools(offered, story.turns),
    )
    stream = agent.stream(asked[-1].parts, after=asked[:-1])  # type: ignore[arg-type]
    conduct(agent, lambda _: stream, view, None)
    said = stream.run.messages[len(asked) :]
    found = list(compared(story.turns, said, None if live else stream.run.calls))
    for one in found:
        for line in difference_lines(one, story.redactor):
            click.echo(line)
    if not found:
        click.echo("no difference")
    return 1 if found else 0


@contextmanager
def _opened(path: Path | None, config_path: Path | None) -> "Iterator[tuple[Runs, Config]]":
    with refusing_bad_input(), needing("runtime"), needing("gateway"):
        from .job import config_of, runs_at

        config, _ = config_of(config_path)
        runs = runs_at(path, config)
        try:
            yield runs, config
        finally:
            runs.close()
