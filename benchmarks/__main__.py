"""`make bench`: the ratios that the project promises, each beside its limit. Exits 1 if one is over it."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec
import orjson

import toolwire
from benchmarks.workloads import anthropic_request, anthropic_stream, frames_of, long_texts_request

ROUNDS = 60


def main() -> int:
    request = anthropic_request()
    stream = anthropic_stream()
    print(f"request of {len(request):,} bytes, stream of {len(frames_of(stream))} events; medians of {ROUNDS} rounds\n")
    rows = [
        *(
            (f"request anthropic -> {target}, to an orjson round trip", _request_ratio(request, target), 2.5)
            for target in ("openai-chat", "openai-responses", "anthropic")
        ),
        ("the same to openai-chat, of long plain texts", _request_ratio(long_texts_request(), "openai-chat"), 2.5),
        *(
            (f"stream anthropic -> {target}, to msgspec on its events", _stream_ratio(stream, target), 3.0)
            for target in ("openai-chat", "anthropic", "openai-responses")
        ),
        ("twice the messages, to once", _growth(lambda scale: anthropic_request(100 * scale)), 2.4),
        ("twice the arguments, to once", _growth(lambda scale: anthropic_request(20, arguments=50_000 * scale)), 2.4),
        ("import toolwire, ms above bare Python", _import_milliseconds(), 50.0),
    ]
    for label, figure, limit in rows:
        print(f"{label:62} {figure:6.2f}   at most {limit:g}{'' if figure <= limit else '   OVER'}")
    return 0 if all(figure <= limit for _, figure, limit in rows) else 1


def _request_ratio(request: bytes, target: str) -> float:
    return _ratio(
        lambda: toolwire.translate(request, "anthropic", target).to_bytes(),
        lambda: orjson.dumps(orjson.loads(request)),
    )


def _stream_ratio(stream: bytes, target: str) -> float:
    frames = frames_of(stream)

    def floor() -> None:
        for frame in frames:
            msgspec.json.encode(msgspec.json.decode(frame))

    return _ratio(lambda: b"".join(toolwire.translate_stream([stream], "anthropic", target)), floor)


def _ratio(work: Callable[[], object], floor: Callable[[], object]) -> float:
    """The median of ratios, each of two runs that follow one another."""
    for warm in (work, floor):
        for _ in range(5):
            warm()
    return statistics.median(_seconds(work) / _seconds(floor) for _ in range(ROUNDS))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _growth(make: Callable[[int], bytes]) -> float:
    once, twice = make(1), make(2)
    return _ratio(
        lambda: toolwire.translate(twice, "anthropic", "openai-chat").to_bytes(),
        lambda: toolwire.translate(once, "anthropic", "openai-chat").to_bytes(),
    )


def _import_milliseconds() -> float:
    def run(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return statistics.median(1000 * (run("import toolwire") - run("pass")) for _ in range(15))


if __name__ == "__main__":
    sys.exit(main())
