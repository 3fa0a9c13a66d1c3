"""`toolwire runs`: what agents did here: listed, shown, taken up again, replayed."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolwire.cli.inputs import DEFAULT_CONFIG, BadInput, report_bad_input, require_extra

if TYPE_CHECKING:
    from toolwire.cli.output.run_report import RunReport
    from toolwire.gateway.config import Config
    from toolwire.journal.runs import RunStore
    from toolwire.runtime.calls.approval import ApprovalAnswer

_Command = TypeVar("_Command", bound=Callable[..., None])
_FILE = click.Path(path_type=Path)
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_RUN_ARGUMENT = click.argument("run", metavar="RUN")


@click.group("runs", short_help="List, show, resume and replay what agents did.")
def command() -> None:
    """List, show, resume and replay the runs of `toolwire ask`.

    RUN is the id of a run, or how it begins if only one does, or `last`.
    """


def _journal_options(function: _Command) -> _Command:
    function = click.option(
        "--config", "config_path", type=_FILE, metavar="FILE", help=f"Default: {DEFAULT_CONFIG}, if there."
    )(function)
    return click.option("--journal", type=_FILE, metavar="FILE", help="Where runs are kept. Default: the user's.")(
        function
    )


@command.command("list")
@click.option("-n", "--lines", type=click.IntRange(1), default=20, metavar="N", help="How many. Default: 20.")
@click.option("--workspace", type=_FOLDER, metavar="DIR", help="Only those of this folder.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@_journal_options
def list_runs(
    *, lines: int, workspace: Path | None, as_json: bool, journal: Path | None, config_path: Path | None
) -> None:
    """List the latest runs, the newest first: id, when, how it stands, model, and how its prompt begins.

    \b
    Example:
      toolwire runs list -n 5
    """
    with _open_runs(journal, config_path) as (runs, config):
        from toolwire.cli.output.run_report import load_reports, summary_as_json, summary_line

        for story in load_reports(runs, config, lines, workspace):
            click.echo(json.dumps(summary_as_json(story)) if as_json else summary_line(story))


@command.command("show")
@_RUN_ARGUMENT
@click.option("--json", "as_json", is_flag=True, help="All of it as one JSON object.")
@click.option("--pictures", type=_FILE, metavar="DIR", help="Write the pictures that the model saw there, with a page.")
@_journal_options
def show(*, run: str, as_json: bool, pictures: Path | None, journal: Path | None, config_path: Path | None) -> None:
    """Show a run: its turns, and of each call its arguments, who allowed it, how long it took and what it gave.

    Known keys, and what looks like one, are taken out.

    \b
    Example:
      toolwire runs show last
      toolwire runs show last --pictures /tmp/seen
    """
    with _open_runs(journal, config_path) as (runs, config):
        from toolwire.cli.output.run_report import load_report, report_as_json, report_lines

        story = load_report(runs, config, run)
        if pictures is not None:
            from toolwire.cli.output.screenshot_report import write_screenshots

            path, count = write_screenshots(story, pictures)
            click.echo(f"{count} pictures: {path}")
            return
        if as_json:
            click.echo(json.dumps(report_as_json(story), indent=2))
            return
        for line in report_lines(story):
            click.echo(line)


@command.command("resume")
@_RUN_ARGUMENT
@click.option("--approve", multiple=True, metavar="CALL", help="Run this call, which waits for an approval.")
@click.option("--deny", multiple=True, metavar="CALL", help="Don't run this call, which waits for an approval.")
@click.option("--yes", is_flag=True, help="Answer every approval with yes. What is denied stays denied.")
@click.option("--no-sandbox", is_flag=True, help="Run commands without a sandbox, with all of your rights.")
@click.option("--max-turns", type=click.IntRange(1), metavar="N", help="Default: as it was started.")
@click.option("--json", "as_json", is_flag=True, help="Events as JSON lines on stdout, and nothing else.")
@_journal_options
def resume(*, run: str, as_json: bool, journal: Path | None, config_path: Path | None, **options: Any) -> None:
    """Go on with a run that was stopped, killed, or waits for an approval.

    What was done is not done again. A call that was under way when the run was killed is in doubt: it is said, to you
    and to the model, and not repeated. An approval counts for the call as `toolwire runs show` shows it, and no other.

    \b
    Exit codes: as for `toolwire ask`.

    \b
    Example:
      toolwire runs resume last --approve call_1
    """
    with _open_runs(journal, config_path) as (runs, config):
        sys.exit(_resume_run(runs, config, run, as_json=as_json, has_config_option=config_path is not None, **options))


def _resume_run(
    runs: "RunStore",
    config: "Config",
    run: str,
    *,
    approve: tuple[str, ...],
    deny: tuple[str, ...],
    yes: bool,
    no_sandbox: bool,
    max_turns: int | None,
    as_json: bool,
    has_config_option: bool,
) -> int:
    from msgspec.structs import replace

    from toolwire.cli.agent_options import (
        SIMULATED_NOTE,
        apply_sandbox_flag,
        build_agent,
        decode_job,
        require_browser,
        uses_simulator,
    )
    from toolwire.cli.output.run_report import load_report
    from toolwire.cli.run_session import ANSWER_STOP_CAUSES, PresetApprover, build_approver, build_output, follow_run

    story = load_report(runs, config, run)
    if story.state in ANSWER_STOP_CAUSES:
        raise BadInput(f"the run {story.id} is over ({story.state}): go on with `toolwire ask --continue`")
    job = decode_job(story.metadata.facts)
    job = replace(job, model=job.model or story.metadata.model, max_turns=max_turns or job.max_turns)
    if not has_config_option:
        config = _original_config(job.config, config)
    view = build_output(job.workspace, as_json=as_json)
    answers = _preset_answers(story, approve, deny)
    if uses_simulator(config):
        view.write_note(SIMULATED_NOTE)
    if job.tools:
        config = apply_sandbox_flag(config, view.write_note, no_sandbox=no_sandbox)
    for id in story.calls_in_doubt:
        view.write_note(f"in doubt: {id} was under way when the run ended; it is not run again")
    other = build_approver(view, yes=yes, defer=job.later or bool(answers))
    require_browser(job, config)
    agent = build_agent(job, config, approver=PresetApprover(answers, other), runs=runs)
    return follow_run(agent, lambda one: one.resume(story.id), view, runs.path)


def _original_config(path: str | None, config: "Config") -> "Config":
    """The one that the run was started with."""
    from toolwire.cli.agent_options import load_config

    return config if path is None else load_config(Path(path))[0]


def _preset_answers(
    report: "RunReport", approve: tuple[str, ...], deny: tuple[str, ...]
) -> "dict[str, ApprovalAnswer]":
    """What was said of calls that wait, by what each answer is bound to."""
    waiting = {ask.call_id: ask for ask in report.pending_approvals}
    for id in (*approve, *deny):
        if id not in waiting:
            raise BadInput(f"no call {id!r} waits for an approval; those that do: {', '.join(waiting) or 'none'}")
        if id in approve and id in deny:
            raise BadInput(f"{id} can't be both approved and denied")
    said: dict[str, ApprovalAnswer] = {waiting[id].digest: "yes" for id in approve}
    return said | {waiting[id].digest: "no" for id in deny}


@command.command("replay")
@_RUN_ARGUMENT
@click.option(
    "--tools",
    type=click.Choice(("recorded", "live")),
    default="recorded",
    help="What calls give: what they gave then, or what they give now. Default: recorded.",
)
@click.option("--workspace", type=_FOLDER, metavar="DIR", help="For live tools: another folder than the run's.")
@click.option("--yes", is_flag=True, help="For live tools: answer every approval with yes.")
@click.option("--no-sandbox", is_flag=True, help="For live tools: run commands without a sandbox.")
@_journal_options
def replay(*, run: str, journal: Path | None, config_path: Path | None, **options: Any) -> None:
    """Play what the model said again, and show which calls come to something else, field by field.

    No model is asked, and nothing is recorded. With --tools live the calls are run, under today's rules and approvals.
    Exit code 0: no difference. 1: there are some. 2: it can't be replayed.

    \b
    Example:
      toolwire runs replay last
      toolwire runs replay last --tools live --workspace /tmp/copy
    """
    with _open_runs(journal, config_path) as (runs, config):
        sys.exit(_replay_run(runs, config, run, has_config_option=config_path is not None, **options))


def _replay_run(
    runs: "RunStore",
    config: "Config",
    run: str,
    *,
    tools: str,
    workspace: Path | None,
    yes: bool,
    no_sandbox: bool,
    has_config_option: bool,
) -> int:
    import os

    from msgspec.structs import replace

    from toolwire.cli.agent_options import apply_sandbox_flag, build_agent, build_tools, decode_job
    from toolwire.cli.output.run_output import TextOutput
    from toolwire.cli.output.run_report import difference_lines, load_report
    from toolwire.cli.run_session import build_approver, follow_run
    from toolwire.runtime.run.replay import ReplayApprover, ReplayModel, compare_calls, replay_tools

    story = load_report(runs, config, run)
    job = decode_job(story.metadata.facts)
    if not has_config_option:
        config = _original_config(job.config, config)
    live = tools == "live"
    if workspace is not None:
        job = replace(job, workspace=os.path.realpath(workspace))
    view = TextOutput(out=sys.stderr, workspace=job.workspace)
    if live and job.tools:
        config = apply_sandbox_flag(config, view.write_note, no_sandbox=no_sandbox)
    person = build_approver(view, yes=yes, defer=False) if live else ReplayApprover(story.turns)
    offered = build_tools(job, config)
    asked = story.metadata.messages
    agent = build_agent(
        job,
        config,
        approver=person,
        model=ReplayModel(story.metadata.model, story.turns),
        tools=offered if live else replay_tools(offered, story.turns),
    )
    stream = agent.stream(asked[-1].parts, history=asked[:-1])  # type: ignore[arg-type]
    follow_run(agent, lambda _: stream, view, None)
    said = stream.run.messages[len(asked) :]
    found = list(compare_calls(story.turns, said, None if live else stream.run.calls))
    for one in found:
        for line in difference_lines(one, story.redactor):
            click.echo(line)
    if not found:
        click.echo("no difference")
    return 1 if found else 0


@contextmanager
def _open_runs(path: Path | None, config_path: Path | None) -> "Iterator[tuple[RunStore, Config]]":
    with report_bad_input(), require_extra("runtime"), require_extra("gateway"):
        from toolwire.cli.agent_options import load_config, open_runs

        config, _ = load_config(config_path)
        runs = open_runs(path, config)
        try:
            yield runs, config
        finally:
            runs.close()
