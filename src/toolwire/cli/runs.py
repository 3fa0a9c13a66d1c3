"""`toolwire runs`: list, show, follow, approve, cancel, resume and replay the runs of agents."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolwire.cli.groups import CommandGroup
from toolwire.cli.inputs import BadInput, NumberOption, config_option, report_bad_input
from toolwire.cli.output.terminal import json_option, print_json, print_line
from toolwire.cli.values import complete_runs

if TYPE_CHECKING:
    from toolwire.cli.output.run_report import RunReport
    from toolwire.gateway.config import Config
    from toolwire.journal.runs import RunStore
    from toolwire.runtime.calls.approval import ApprovalAnswer

_Command = TypeVar("_Command", bound=Callable[..., None])
_FILE = click.Path(path_type=Path)
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_RUN_ARGUMENT = click.argument("run", metavar="RUN", shell_complete=complete_runs)


@click.group("runs", cls=CommandGroup, short_help="List, show, follow, resume and replay runs.")
def command() -> None:
    """List, show, resume and replay the runs of `toolwire ask`.

    RUN is the id of a run, the beginning of one if it is unique, or `last`.

    \b
    Examples:
      toolwire runs list
      toolwire runs show last
      toolwire runs resume last
    """


def _journal_options(function: _Command) -> _Command:
    """Add the options that select the store of runs."""
    function = config_option(function)
    return click.option("--journal", type=_FILE, metavar="FILE", help="Store of runs. Default: the user's.")(function)


@command.command("list")
@click.option(
    "-n",
    "--lines",
    cls=NumberOption,
    type=click.IntRange(1),
    default=20,
    metavar="N",
    help="Number of runs. Default: 20.",
)
@click.option("--workspace", type=_FOLDER, metavar="DIR", help="Only runs in this folder.")
@json_option("Print one JSON object per line.")
@_journal_options
def list_runs(
    *, lines: int, workspace: Path | None, as_json: bool, journal: Path | None, config_path: Path | None
) -> None:
    """List the latest runs, newest first.

    Prints id, time, state, model and the beginning of the prompt. On a terminal the time is an age, such as 5m.

    \b
    Examples:
      toolwire runs list -n 5
    """
    with _open_runs(journal, config_path) as (runs, config):
        from toolwire.cli.output.run_report import load_reports, print_summaries, summary_as_json

        reports = list(load_reports(runs, config, lines, workspace))
        if not reports:
            print_line(("no runs are recorded yet", "muted"), err=True)
        if as_json:
            for report in reports:
                print_json(summary_as_json(report), indent=False)
        else:
            print_summaries(reports)


@command.command("show")
@_RUN_ARGUMENT
@json_option("Print one JSON object.")
@click.option("--pictures", type=_FILE, metavar="DIR", help="Write the screenshots as an HTML page to DIR.")
@_journal_options
def show(*, run: str, as_json: bool, pictures: Path | None, journal: Path | None, config_path: Path | None) -> None:
    """Show the turns and calls of a run.

    Prints arguments, approval, duration and result of each call. API keys, and anything that looks like one, are
    removed.

    \b
    Examples:
      toolwire runs show last
      toolwire runs show last --pictures /tmp/seen
    """
    with _open_runs(journal, config_path) as (runs, config):
        from toolwire.cli.output.run_report import load_report, print_report, report_as_json

        report = load_report(runs, config, run)
        if pictures is not None:
            from toolwire.cli.output.screenshot_report import write_screenshots

            path, count = write_screenshots(report, pictures)
            print_line(f"{count} picture{'' if count == 1 else 's'}: {path}")
            return
        if as_json:
            print_json(report_as_json(report))
        else:
            print_report(report)


@command.command("resume")
@_RUN_ARGUMENT
@click.option("--approve", multiple=True, metavar="CALL", help="Run this call, which is waiting for approval.")
@click.option("--deny", multiple=True, metavar="CALL", help="Deny this call, which is waiting for approval.")
@click.option("--yes", is_flag=True, help="Approve every call. Denied calls stay denied.")
@click.option("--no-sandbox", is_flag=True, help="Run commands without a sandbox, with all of your permissions.")
@click.option(
    "--max-turns",
    cls=NumberOption,
    type=click.IntRange(1),
    metavar="N",
    help="Limit of model turns. Default: the run's.",
)
@json_option("Write events as JSON lines to stdout.")
@_journal_options
def resume(*, run: str, as_json: bool, journal: Path | None, config_path: Path | None, **options: Any) -> None:
    """Resume a run that was stopped, killed or is waiting for approval.

    Finished calls are not repeated. A call that was running when the run was killed is in doubt: you and the model are
    told, and it is not repeated. An approval applies only to the call exactly as `toolwire runs show` shows it.

    \b
    Exit codes: as for `toolwire ask`.

    \b
    Examples:
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
    """Rebuild the agent of a run, resume it, and return the exit code."""
    from msgspec.structs import replace

    from toolwire.cli.agent_options import (
        SIMULATED_NOTE,
        apply_sandbox_flag,
        build_agent,
        decode_job,
        original_config,
        require_browser,
        uses_simulator,
    )
    from toolwire.cli.output.run_report import load_report
    from toolwire.cli.run_session import ANSWER_STOP_CAUSES, PresetApprover, build_approver, build_output, follow_run

    report = load_report(runs, config, run)
    if report.state in ANSWER_STOP_CAUSES:
        raise BadInput(f"the run {report.id} has ended ({report.state}): continue with `toolwire ask --continue`")
    job = decode_job(report.metadata.facts)
    job = replace(job, model=job.model or report.metadata.model, max_turns=max_turns or job.max_turns)
    if not has_config_option:
        config = original_config(job, config)
    output = build_output(job.workspace, as_json=as_json)
    answers = _preset_answers(report, approve, deny)
    if uses_simulator(config):
        output.write_note(SIMULATED_NOTE)
    if job.tools:
        config = apply_sandbox_flag(config, output.write_note, no_sandbox=no_sandbox)
    for id in report.calls_in_doubt:
        output.write_note(f"in doubt: {id} was running when the run ended; it is not run again")
    fallback = build_approver(output, yes=yes, defer=job.later or bool(answers))
    require_browser(job, config)
    agent = build_agent(job, config, approver=PresetApprover(answers, fallback), runs=runs)
    return follow_run(agent, lambda agent: agent.resume(report.id), output, runs.name)


def _preset_answers(
    report: "RunReport", approve: tuple[str, ...], deny: tuple[str, ...]
) -> "dict[str, ApprovalAnswer]":
    """Return the answers of --approve and --deny, by the digest of the call that each one applies to."""
    waiting = {request.call_id: request for request in report.pending_approvals}
    for id in (*approve, *deny):
        if id not in waiting:
            raise BadInput(f"call {id!r} is not waiting for approval; waiting calls: {', '.join(waiting) or 'none'}")
        if id in approve and id in deny:
            raise BadInput(f"{id} can't be both approved and denied")
    answers: dict[str, ApprovalAnswer] = {waiting[id].digest: "yes" for id in approve}
    return answers | {waiting[id].digest: "no" for id in deny}


@command.command("follow")
@_RUN_ARGUMENT
@json_option("Write events as JSON lines to stdout.")
@_journal_options
def follow(*, run: str, as_json: bool, journal: Path | None, config_path: Path | None) -> None:
    """Follow a run that another process executes, from its beginning to its end.

    \b
    Exit codes: as for `toolwire ask`.

    \b
    Examples:
      toolwire runs follow last
    """
    with _open_runs(journal, config_path) as (runs, config):
        from toolwire.cli.output.run_follower import follow_recorded_run
        from toolwire.cli.output.run_report import load_report
        from toolwire.cli.run_session import build_output

        report = load_report(runs, config, run)
        output = build_output(report.metadata.facts.get("workspace", ""), as_json=as_json)
        sys.exit(follow_recorded_run(runs, report, output))


@command.command("approve")
@_RUN_ARGUMENT
@click.argument("calls", metavar="CALL...", nargs=-1, required=True)
@_journal_options
def approve(*, run: str, calls: tuple[str, ...], journal: Path | None, config_path: Path | None) -> None:
    """Approve calls that a run on a worker is waiting for; a worker continues the run.

    An approval applies only to the call exactly as `toolwire runs show` shows it.

    \b
    Examples:
      toolwire runs approve last call_1
    """
    with _open_runs(journal, config_path) as (runs, config):
        _decide(runs, config, run, dict.fromkeys(calls, "yes"))


@command.command("deny")
@_RUN_ARGUMENT
@click.argument("calls", metavar="CALL...", nargs=-1, required=True)
@_journal_options
def deny(*, run: str, calls: tuple[str, ...], journal: Path | None, config_path: Path | None) -> None:
    """Deny calls that a run on a worker is waiting for; a worker continues the run.

    \b
    Examples:
      toolwire runs deny last call_1
    """
    with _open_runs(journal, config_path) as (runs, config):
        _decide(runs, config, run, dict.fromkeys(calls, "no"))


def _decide(runs: "RunStore", config: "Config", run: str, answers: dict[str, str]) -> None:
    """Store answers to approval requests of a run on a worker."""
    from toolwire.cli.output.run_report import load_report
    from toolwire.journal.runs import StoredDecision

    report = load_report(runs, config, run)
    if report.queue is None:
        raise BadInput(f"no worker executes the run {report.id}: use `toolwire runs resume {report.id} --approve CALL`")
    waiting = {request.call_id: request for request in report.pending_approvals}
    if unknown := [call for call in answers if call not in waiting]:
        raise BadInput(
            f"call {unknown[0]!r} is not waiting for approval; waiting calls: {', '.join(waiting) or 'none'}"
        )
    for call, answer in answers.items():
        runs.decide(report.id, waiting[call].digest, StoredDecision(answer, "person"))


@command.command("cancel")
@_RUN_ARGUMENT
@_journal_options
def cancel(*, run: str, journal: Path | None, config_path: Path | None) -> None:
    """Cancel a run, wherever it is executed. A worker stops it at once, another process before its next step.

    \b
    Examples:
      toolwire runs cancel last
    """
    with _open_runs(journal, config_path) as (runs, config):
        from toolwire.cli.output.run_report import load_report

        report = load_report(runs, config, run)
        if report.end_event is not None and report.state != "waiting":
            raise BadInput(f"the run {report.id} has ended ({report.state})")
        runs.cancel(report.id)
        if not runs.is_held(report.id):
            _end_cancelled(runs, report)
        print_line(f"cancelled {report.id}", err=True)


def _end_cancelled(runs: "RunStore", report: "RunReport") -> None:
    """End a cancelled run that no process executes."""
    import msgspec

    from toolwire.journal.runs import RunInUse
    from toolwire.runtime.run.events import RunEnded

    end = RunEnded(run=report.id, stopped="cancelled", reason="cancelled by `toolwire runs cancel`")
    try:
        runs.resume(report.id).end(msgspec.json.encode(end))
    except RunInUse:
        runs.cancel(report.id)  # a process has just taken it


@command.command("replay")
@_RUN_ARGUMENT
@click.option(
    "--tools",
    type=click.Choice(("recorded", "live")),
    default="recorded",
    help="Use the recorded results, or run the tools again. Default: recorded.",
)
@click.option("--workspace", type=_FOLDER, metavar="DIR", help="For live tools: use this folder, not the run's.")
@click.option("--yes", is_flag=True, help="For live tools: approve every call.")
@click.option("--no-sandbox", is_flag=True, help="For live tools: run commands without a sandbox.")
@json_option("Print the differences as one JSON object.")
@_journal_options
def replay(*, run: str, journal: Path | None, config_path: Path | None, **options: Any) -> None:
    """Replay the recorded turns of the model, and show differences.

    The outcome of each call is compared field by field. No model is called and nothing is recorded. With --tools live
    the tools run, under the current rules and approvals. Exit code 0: no difference. 1: differences. 2: the run can't
    be replayed.

    \b
    Examples:
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
    as_json: bool,
    has_config_option: bool,
) -> int:
    """Replay a run, print the differences, and return the exit code."""
    import os

    from msgspec.structs import replace

    from toolwire.cli.agent_options import apply_sandbox_flag, build_agent, build_tools, decode_job, original_config
    from toolwire.cli.output.run_output import TextOutput
    from toolwire.cli.output.run_report import differences_as_json, load_report, print_differences
    from toolwire.cli.run_session import build_approver, follow_run
    from toolwire.runtime.run.replay import ReplayApprover, ReplayModel, compare_calls, replay_tools

    report = load_report(runs, config, run)
    job = decode_job(report.metadata.facts)
    if not has_config_option:
        config = original_config(job, config)
    live = tools == "live"
    if workspace is not None:
        job = replace(job, workspace=os.path.realpath(workspace))
    output = TextOutput(out=sys.stderr, workspace=job.workspace)
    if live and job.tools:
        config = apply_sandbox_flag(config, output.write_note, no_sandbox=no_sandbox)
    approver = build_approver(output, yes=yes, defer=False) if live else ReplayApprover(report.turns)
    tool_sources = build_tools(job, config)
    prompt_messages = report.metadata.messages
    agent = build_agent(
        job,
        config,
        approver=approver,
        model=ReplayModel(report.metadata.model, report.turns),
        tools=tool_sources if live else replay_tools(tool_sources, report.turns),
    )
    stream = agent.stream(prompt_messages[-1].parts, history=prompt_messages[:-1])  # type: ignore[arg-type]
    follow_run(agent, lambda _: stream, output, None)
    new_messages = stream.run.messages[len(prompt_messages) :]
    differences = list(compare_calls(report.turns, new_messages, None if live else stream.run.calls))
    if as_json:
        print_json({"run": report.id, "differences": differences_as_json(differences, report.redactor)})
    else:
        print_differences(differences, report.redactor)
    return 1 if differences else 0


@contextmanager
def _open_runs(path: Path | None, config_path: Path | None) -> "Iterator[tuple[RunStore, Config]]":
    """Open the store of runs. Yield it with the configuration."""
    with report_bad_input():
        from toolwire.cli.agent_options import open_runs
        from toolwire.gateway.config import load_config

        config = load_config(config_path).config
        runs = open_runs(path, config)
        try:
            yield runs, config
        finally:
            runs.close()
