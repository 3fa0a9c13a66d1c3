"""`make bench-instructions`: instructions of translations at a revision and in this checkout, counted by valgrind.

Unlike times, they don't depend on other load. Both translate the same varied traffic, which no cache has seen. With
`--exchanges`, a gateway of each serves the traffic of `make bench-gateway`.
"""

import argparse
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec

from benchmarks.gateway import agents
from benchmarks.gateway.agents import Agent, Writer
from benchmarks.gateway.answers import draw_answer, encode_body, encode_stream
from benchmarks.gateway.instructions import COUNTS, count_exchanges

ROOT = Path(__file__).parents[1]
CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai-chat", "openai-responses", "anthropic", "gemini"
CASES: tuple[tuple[Literal["request", "response", "stream"], str, str], ...] = (
    ("request", ANTHROPIC, ANTHROPIC),
    ("request", ANTHROPIC, CHAT),
    ("request", ANTHROPIC, RESPONSES),
    ("request", ANTHROPIC, GEMINI),
    ("request", CHAT, CHAT),
    ("request", CHAT, ANTHROPIC),
    ("response", CHAT, CHAT),
    ("response", CHAT, ANTHROPIC),
    ("response", CHAT, GEMINI),
    ("stream", CHAT, CHAT),
    ("stream", CHAT, ANTHROPIC),
    ("stream", CHAT, RESPONSES),
)
WARM_UP, MEASURED = 3, 6  # bodies of each case
# callgrind writes its counts whenever the program calls this function of libc.
MARK = "getpgrp"
# valgrind counts each byte that `rep movsb` copies or `rep stosb` sets as one instruction.
NO_REPEATED_INSTRUCTIONS = "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000"


class Bodies(msgspec.Struct):
    """Bodies of a protocol."""

    request: list[bytes] = []
    response: list[bytes] = []
    stream: list[bytes] = []


def draw_bodies(seed: int) -> dict[str, Bodies]:
    """Return bodies of Anthropic and Chat clients and of Chat servers, each with an agent of its own."""
    writer = Writer(Random(seed))
    drawn = {ANTHROPIC: Bodies(), CHAT: Bodies()}
    for number in range(WARM_UP + MEASURED):
        agent = writer.agent()
        turns = 1 + number % 8
        for turn in range(turns):
            writer.add_turn(agent, number * 100 + turn, last=turn == turns - 1)
        drawn[ANTHROPIC].request.append(_request(agents.anthropic_parts(agent), agents.anthropic_tail, agent))
        drawn[CHAT].request.append(_request(agents.chat_parts(agent), agents.chat_tail, agent))
        answer = draw_answer(writer, agent, agent.turns[number % len(agent.turns)])
        drawn[CHAT].response.append(encode_body(answer))
        drawn[CHAT].stream.append(b"".join(encode_stream(answer)))
    return drawn


def _request(parts: list[tuple[str, str]], tail: Callable[..., str], agent: Agent) -> bytes:
    messages = ",".join(plain for plain, _ in parts[:-1])  # the last answer is in no request
    return ('{"model":"bench","messages":[' + messages + tail(agent, streamed=False)).encode()


def translate_marked(path: Path) -> None:
    """Translate the bodies in a file, with a mark before and after those that count.

    It runs with the toolwire of either revision, and uses what both have.
    """
    import toolwire  # noqa: PLC0415 - of the revision

    drawn = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, Bodies])
    gc.disable()  # a collection of all objects would count for the case in which it happens to be due
    for kind, source, target in CASES:
        bodies = getattr(drawn[source], kind)
        for number, body in enumerate(bodies):
            if number == WARM_UP:
                os.getpgrp()
            if kind == "stream":
                b"".join(toolwire.translate_stream([body], source, target))
            else:
                toolwire.translate(body, source, target, kind).to_bytes()
        os.getpgrp()


def count(tree: Path, bodies: Path, folder: Path) -> list[int]:
    """Return the instructions of each case, with the toolwire in this tree."""
    for old in folder.glob("counts*"):
        old.unlink()
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts", f"--dump-before={MARK}"]
    command += [sys.executable, "-m", "benchmarks.instructions", "--translate", str(bodies)]
    environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}:{ROOT}", "PYTHONHASHSEED": "0"}
    environment["GLIBC_TUNABLES"] = NO_REPEATED_INSTRUCTIONS
    # Modules that are compiled at import leave the memory in another state, which costs up to 2 %.
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(tree / "src")], check=True)
    try:
        done = subprocess.run(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit("needs valgrind: apt-get install valgrind") from None
    if done.returncode:
        raise SystemExit(f"valgrind failed with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    # A mark ends the warm-up of a case, and the next one its measurement.
    dumps = [folder / f"counts.{number}" for number in range(2, 2 * len(CASES) + 1, 2)]
    return [_total(dump) for dump in dumps]


def _total(dump: Path) -> int:
    (line,) = [line for line in dump.read_text().splitlines() if line.startswith("totals:")]
    return int(line.split()[1])


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """Check out a revision into a folder of its own."""
    with TemporaryDirectory(prefix="toolwire-base-") as folder:
        archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=False)
        if archive.returncode:
            raise SystemExit(archive.stderr.decode().strip())
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def compare_exchanges(revision: str, seed: int, names: list[str]) -> None:
    """Print the instructions of exchanges through the gateway."""
    if shutil.which("valgrind") is None:
        raise SystemExit("needs valgrind: apt-get install valgrind")
    with checkout(revision) as base, TemporaryDirectory() as folder:
        before, after = (count_exchanges(tree, Path(folder), seed, names) for tree in (base, ROOT))
    print(f"thousand instructions per exchange, 16 connections, seed {seed}\n")
    print(f"  {'':12} {revision[:10]:>10} {'here':>10} {'change':>8}")
    for name, old in before.items():
        print(f"  {name:12} {old / 1000:10,.0f} {after[name] / 1000:10,.0f} {after[name] / old - 1:+8.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD", help="the revision to compare with (default: HEAD)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the traffic")
    parser.add_argument("--exchanges", nargs="?", const=",".join(COUNTS), help="count exchanges of these workloads")
    parser.add_argument("--translate", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.translate:
        translate_marked(arguments.translate)
        return
    if arguments.exchanges:
        compare_exchanges(arguments.base, arguments.seed, arguments.exchanges.split(","))
        return
    with checkout(arguments.base) as base, TemporaryDirectory() as folder:
        bodies = Path(folder) / "bodies"
        bodies.write_bytes(msgspec.msgpack.encode(draw_bodies(arguments.seed)))
        before, after = (count(tree, bodies, Path(folder)) for tree in (base, ROOT))
    print(f"thousand instructions per translation, mean of {MEASURED} bodies, seed {arguments.seed}\n")
    print(f"  {'':42} {arguments.base[:10]:>10} {'here':>10} {'change':>8}")
    for (kind, source, target), old, new in zip(CASES, before, after, strict=True):
        label = f"{kind}: {source} -> {target}"
        print(f"  {label:42} {old / MEASURED / 1000:10,.0f} {new / MEASURED / 1000:10,.0f} {new / old - 1:+8.1%}")


if __name__ == "__main__":
    main()
