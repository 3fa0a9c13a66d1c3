"""The cost of looking for calls in the text of a stream without any, by time and by instructions.

`make bench` judges the time. Each round draws an answer and translates it twice, read by read in turns: with the
parsers and without. So other load meets both, but still disturbs single reads. What a read takes is therefore the mean
of the fastest quarter of all rounds, and what a stream takes is the sum over its reads, from its creation to its end.
`python -m benchmarks.recovery` also compares streams without the parsers, to show the error, and counts instructions.
"""

import gc
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import toolwire
from benchmarks.instructions import MARK
from benchmarks.workloads import PROSE, small_request, text_frames

ANTHROPIC, CHAT, OLLAMA = "anthropic", "openai-chat", "ollama"
PAIRS = ((CHAT, ANTHROPIC), (CHAT, CHAT), (OLLAMA, ANTHROPIC), (OLLAMA, OLLAMA))
SIZES = {"one by one": 1, "20 at a time": 20}
ROUNDS = 200
EVENTS = 240
WARM_UP, COUNTED = 8, 4  # answers whose instructions are counted
_LETTERS = "abcdeghiklmnoprstuvw"
_clock = time.thread_time_ns


def draw_answer(random: Random, text: str = PROSE) -> str:
    """Return the words of a text in another order, every fortieth of them replaced by one that no cache has seen."""
    words = re.findall(r"\S+\s*", text)
    random.shuffle(words)
    for place in range(random.randrange(40), len(words), 40):
        words[place] = "".join(random.choices(_LETTERS, k=7)) + " "
    return "I see: " + "".join(words)  # no mark begins like this


def reads_of(protocol: str, text: str, size: int) -> list[bytes]:
    """Return the stream of an answer, always as long, so many events in each read."""
    frames = text_frames(protocol, text)
    frames = frames[:EVENTS] + frames[-2 if protocol == CHAT else -1 :]
    return [b"".join(frames[start : start + size]) for start in range(0, len(frames), size)]


def recovery_percent(
    source: str, target: str, size: int, draw: Callable[[Random], str] = draw_answer, parser: str = "auto"
) -> float:
    """Return the cost of the parsers in percent of the translation."""
    request, random = toolwire.translate(small_request(), ANTHROPIC, target).to_bytes(), Random(size)
    rounds: list[tuple[list[int], list[int]]] = []
    gc.collect()
    gc.disable()
    try:
        for number in range(ROUNDS):
            reads = reads_of(source, draw(random), size)
            rounds.append(_time_in_turns(reads, source, target, request, parser, first=number % 2))
    finally:
        gc.enable()
    spent = [sum(map(_typical, zip(*[times[which] for times in rounds], strict=True))) for which in (0, 1)]
    return 100 * (spent[1] / spent[0] - 1)


def _time_in_turns(
    reads: list[bytes], source: str, target: str, request: bytes, parser: str, *, first: int
) -> tuple[list[int], list[int]]:
    """Return the nanoseconds of each step of two translations: without the parsers, and with them."""
    times: tuple[list[int], list[int]] = ([], [])
    streams = {}
    order = (0, 1) if first else (1, 0)
    for which in order:
        start = _clock()
        name = parser if which else "off"
        stream = toolwire.translate_stream(
            reads,
            source,
            target,
            request,
            tool_call_parser=name,
            reasoning_parser=name,
        )
        streams[which] = iter(stream)
        times[which].append(_clock() - start)
    unfinished = {0, 1}
    while unfinished:
        order = order[::-1]
        for which in order:
            start = _clock()
            data = next(streams[which], None)
            times[which].append(_clock() - start)
            if data is None:
                unfinished.discard(which)
    return times


def _typical(times: tuple[int, ...]) -> float:
    """Return the mean of the fastest quarter."""
    return statistics.fmean(sorted(times)[: len(times) // 4])


def translate_marked() -> None:
    """Translate answers without and with the parsers, with a mark before and after those that count."""
    for (source, target), size in cases():
        request, random = toolwire.translate(small_request(), ANTHROPIC, target).to_bytes(), Random(size)
        answers = [reads_of(source, draw_answer(random), size) for _ in range(WARM_UP + COUNTED)]
        for parser in ("auto", "off", "auto"):  # the first time so that both find what the caches learn
            for number, reads in enumerate(answers):
                if number == WARM_UP:
                    os.getpgrp()
                stream = toolwire.translate_stream(
                    reads,
                    source,
                    target,
                    request,
                    tool_call_parser=parser,
                    reasoning_parser=parser,
                )
                b"".join(stream)
            os.getpgrp()


def count_instructions() -> list[float]:
    """Return the cost of the parsers of each case in percent of the instructions, counted by valgrind."""
    root = Path(__file__).parents[1]
    with TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts", f"--dump-before={MARK}"]
        command += [sys.executable, "-m", "benchmarks.recovery", "--translate"]
        environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}", "PYTHONHASHSEED": "0"}
        subprocess.run(command, cwd=folder, env=environment, stderr=subprocess.PIPE, check=True)
        counts = [_total(Path(f"{folder}/counts.{number}")) for number in range(2, 6 * len(cases()) + 1, 2)]
    return [100 * (counts[start + 2] / counts[start + 1] - 1) for start in range(0, len(counts), 3)]


def _total(dump: Path) -> int:
    (line,) = [line for line in dump.read_text().splitlines() if line.startswith("totals:")]
    return int(line.split()[1])


def cases() -> list[tuple[tuple[str, str], int]]:
    """Return pairs of protocols, and events in each read."""
    return [(pair, size) for pair in PAIRS for size in SIZES.values()]


def main() -> None:
    if "--translate" in sys.argv:
        translate_marked()
        return
    print(f"percent of the translation of {EVENTS} deltas; error: without the parsers, compared with itself\n")
    print(f"  {'':36} {'time':>8} {'error':>8} {'instructions':>14}")
    try:
        instructions: list[float | None] = list(count_instructions())
    except (FileNotFoundError, subprocess.CalledProcessError):
        instructions = [None] * len(cases())
    for ((source, target), size), counted in zip(cases(), instructions, strict=True):
        spent = recovery_percent(source, target, size)
        error = recovery_percent(source, target, size, parser="off")
        label = f"{source} -> {target}, {size} at a time"
        print(f"  {label:36} {spent:8.2f} {error:8.2f} {'-' if counted is None else f'{counted:14.2f}'}", flush=True)


if __name__ == "__main__":
    main()
