"""`make bench-cache`: the share of prompt tokens that could be read from the cache, for every pair of protocols.

Each recorded conversation is sent turn by turn, translated as the gateway does it. The share is compared with that of
the same requests at the client's own provider. Besides the corpus, it measures sessions of real agents in a folder that
`make test-agents ARGUMENTS='--record FOLDER'` wrote.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

import toolwire as tw
from tests.support.samples import corpus
from toolwire.protocols import PROTOCOLS
from toolwire.translation.cache_share import estimate_cache_share

Session = tuple[str, list[dict[str, Any]]]
"""The protocol of a client, and the requests of a conversation in order."""

TOLERANCE = 0.02
CLAUDE, GPT = "anthropic/claude-opus-5-5", "gpt-6"
_PATHS = {"/v1/messages": "anthropic", "/v1/responses": "openai-responses", "/chat/completions": "openai-chat"}


def recorded_conversations() -> Iterator[Session]:
    """Yield the conversations of the corpus."""
    for protocol in PROTOCOLS:
        conversations: dict[str, list[corpus.Recording]] = {}
        for compatible in (False, True):
            for recording in corpus.recordings(protocol, compatible=compatible, kind="generate"):
                if recording.conversation is not None and isinstance(recording.request, dict):
                    conversations.setdefault(recording.conversation, []).append(recording)
        for recordings in conversations.values():
            if len(recordings) > 1:
                yield protocol, [turn.request for turn in sorted(recordings, key=lambda turn: turn.turn or 0)]


def agent_sessions(folder: Path) -> Iterator[Session]:
    """Yield the sessions of agents that were recorded in a folder, with one protocol each."""
    for session in sorted(folder.iterdir()):
        requests: dict[str, list[dict[str, Any]]] = {}
        for path in sorted(session.glob("client-*-request.json")):
            address = path.with_name(path.name.replace("-request.json", "-address")).read_text(encoding="utf-8")
            protocol = next((name for part, name in _PATHS.items() if part in address), "gemini")
            body = json.loads(path.read_bytes() or b"null")
            if isinstance(body, dict):
                requests.setdefault(protocol, []).append(body)
        yield from requests.items()


def measure(sessions: Sequence[Session], target: str) -> tuple[float, int]:
    """Return the share of the tokens of all sessions that could be read, and the number of sessions measured."""
    tokens = readable = count = 0
    for source, requests in sessions:
        bodies = [_translate(request, source, target) for request in requests]
        if None in bodies:
            continue
        sent = [body for body in bodies if body is not None]
        shares = [
            estimate_cache_share(body, sent[:index], PROTOCOLS[target]) for index, body in enumerate(sent) if index
        ]
        tokens += sum(share.tokens for share in shares)
        readable += sum(share.readable_tokens for share in shares)
        count += 1
    return readable / (tokens or 1), count


def _translate(request: dict[str, Any], source: str, target: str) -> bytes | None:
    """Return a request as the gateway sends it; None if it is refused."""
    model = {"openrouter": CLAUDE, "gemini": "gemini-3-pro"}.get(target, GPT)
    options: dict[str, Any] = {} if source == target and source != "gemini" else {"model": model}
    try:
        return tw.translate(request, source, target, cache="auto", **options).to_bytes()
    except (tw.ToolwireError, msgspec.MsgspecError):
        return None


def compare(title: str, sessions: Sequence[Session]) -> bool:
    """Print a table for these sessions, and return whether each share is as high as the direct one."""
    click.echo(f"\n{title}\n{'client':20} {'direct':>8}  " + "  ".join(f"{name:>19}" for name in PROTOCOLS))
    passed = True
    for source in PROTOCOLS:
        own = [session for session in sessions if session[0] == source]
        if not own:
            continue
        cells = []
        for target in PROTOCOLS:
            translatable = [
                (protocol, requests)
                for protocol, requests in own
                if None not in [_translate(request, protocol, target) for request in requests]
            ]
            direct, share = measure(translatable, source)[0], measure(translatable, target)[0]
            passed = passed and share >= direct - TOLERANCE
            cells.append(f"{share:6.1%} ({100 * (share - direct):+5.1f}) {len(translatable):4}")
        click.echo(f"{source:20} {measure(own, source)[0]:8.1%}  " + "  ".join(f"{cell:>19}" for cell in cells))
    return passed


@click.command()
@click.option("--sessions", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Recorded agents.")
def main(sessions: Path | None) -> None:
    """Compare the shares, and exit with 1 if one is more than two points below the direct one."""
    click.echo("Share that could be read from the cache (points above the direct share) and number of conversations.")
    passed = compare("Recorded conversations", list(recorded_conversations()))
    if sessions is not None:
        passed = compare("Sessions of agents", list(agent_sessions(sessions))) and passed
    sys.exit(not passed)


if __name__ == "__main__":
    main()
