"""`make bench`: print the promised ratios with their limits, and exit 1 if one exceeds its limit."""

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import orjson

import toolwire
from benchmarks.steps import step_milliseconds, sync_milliseconds
from benchmarks.workloads import (
    anthropic_request,
    frames_of,
    long_texts_request,
    small_request,
    translated_request,
    translated_stream,
)

ROUNDS = 60
REQUEST_LIMIT, STREAM_LIMIT, GROWTH_LIMIT, IMPORT_LIMIT, STEP_LIMIT = 2.5, 3.0, 2.4, 50.0, 1.0
CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai-chat", "openai-responses", "anthropic", "gemini"
REQUEST_PAIRS = (
    (ANTHROPIC, CHAT),
    (ANTHROPIC, RESPONSES),
    (ANTHROPIC, GEMINI),
    (ANTHROPIC, ANTHROPIC),
    (GEMINI, CHAT),
    (GEMINI, GEMINI),
    (RESPONSES, CHAT),
    (RESPONSES, RESPONSES),
)
STREAM_PAIRS = (
    (ANTHROPIC, CHAT),
    (ANTHROPIC, RESPONSES),
    (ANTHROPIC, GEMINI),
    (ANTHROPIC, ANTHROPIC),
    (CHAT, ANTHROPIC),
    (GEMINI, ANTHROPIC),
    (GEMINI, GEMINI),
    (RESPONSES, ANTHROPIC),
    (RESPONSES, RESPONSES),
)
PROTOCOLS = (ANTHROPIC, CHAT, RESPONSES, GEMINI, "gemini-interactions", "ollama", "openrouter")


def main() -> int:
    print(f"medians of {ROUNDS} rounds, each of the work and its floor in turn; processor time\n")
    over = [label for label, figure, limit in _rows() if not _is_held(label, figure, limit)]
    disk = f"one tool step on this disk, ms (one fsync: {sync_milliseconds():.2f} ms)"
    print(f"  {disk:58} {step_milliseconds(None):6.2f}   no limit: four writes that wait for the disk")
    texts = long_texts_request()
    print("\nBeside these, with no limit: a request of long plain texts, of which orjson does little more than copy:")
    print(f"  {ANTHROPIC} -> {CHAT}, {len(texts):,} bytes".ljust(61) + f"{_request_ratio(texts, ANTHROPIC, CHAT):6.2f}")
    print(f"\nA small request ({len(small_request()):,} bytes), in µs for one translation; no limit:")
    for protocol in PROTOCOLS:
        home, to_chat = _small_microseconds(protocol, protocol), _small_microseconds(protocol, CHAT)
        print(f"  {protocol:20} home {home:5.0f}   to {CHAT} {to_chat:5.0f}")
    print(f"\n{len(over)} over the limit" if over else "\nall within their limits")
    return 1 if over else 0


def _is_held(label: str, figure: float, limit: float) -> bool:
    held = figure <= limit
    print(f"  {label:58} {figure:6.2f}   at most {limit:g}{'' if held else '   OVER'}", flush=True)
    return held


def _rows() -> Iterator[tuple[str, float, float]]:
    """Yield label, ratio and limit, measured lazily."""
    print("A request, bytes in and bytes out, to an orjson round trip of the same bytes:")
    for source, target in REQUEST_PAIRS:
        request = translated_request(source)
        label = f"{source} -> {target}, {len(request):,} bytes"
        yield label, _request_ratio(request, source, target), REQUEST_LIMIT
    print("\nA stream, to msgspec decoding and encoding the same events:")
    for source, target in STREAM_PAIRS:
        stream = translated_stream(source)
        label = f"{source} -> {target}, {len(frames_of(stream))} events"
        yield label, _stream_ratio(stream, source, target), STREAM_LIMIT
    print("\nGrowth, and the cost of an import:")
    yield "twice the messages, to once", _growth(lambda scale: anthropic_request(100 * scale)), GROWTH_LIMIT
    arguments = _growth(lambda scale: anthropic_request(20, arguments=50_000 * scale))
    yield "twice the arguments, to once", arguments, GROWTH_LIMIT
    yield "import toolwire, ms above bare Python", _import_milliseconds(), IMPORT_LIMIT
    print("\nThe runtime:")
    yield "one tool step, ms without model time and disk", step_milliseconds(), STEP_LIMIT


def _request_ratio(request: bytes, source: str, target: str) -> float:
    return _ratio(
        lambda: toolwire.translate(request, source, target).to_bytes(),
        lambda: orjson.dumps(orjson.loads(request)),
    )


def _stream_ratio(stream: bytes, source: str, target: str) -> float:
    frames = frames_of(stream)

    def floor() -> None:
        for frame in frames:
            msgspec.json.encode(msgspec.json.decode(frame))

    return _ratio(lambda: b"".join(toolwire.translate_stream([stream], source, target)), floor)


def _ratio(work: Callable[[], object], floor: Callable[[], object]) -> float:
    """Return the median ratio of paired runs.

    As in `timeit`, the garbage collector is off, since garbage of one run would count for the other.
    """
    for warm in (work, floor):
        for _ in range(5):
            warm()
    gc.collect()
    gc.disable()
    try:
        return statistics.median(_seconds(work) / _seconds(floor) for _ in range(ROUNDS))
    finally:
        gc.enable()


def _seconds(work: Callable[[], object]) -> float:
    """Return CPU seconds, so that other load counts less."""
    start = time.process_time()
    work()
    return time.process_time() - start


def _growth(make: Callable[[int], bytes]) -> float:
    once, twice = make(1), make(2)
    return _ratio(
        lambda: toolwire.translate(twice, ANTHROPIC, CHAT).to_bytes(),
        lambda: toolwire.translate(once, ANTHROPIC, CHAT).to_bytes(),
    )


def _small_microseconds(source: str, target: str) -> float:
    request = toolwire.translate(small_request(), ANTHROPIC, source).to_bytes()
    times = [_seconds(lambda: toolwire.translate(request, source, target).to_bytes()) for _ in range(5 * ROUNDS)]
    return 1e6 * statistics.median(times)


def _import_milliseconds() -> float:
    def run(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return statistics.median(1000 * (run("import toolwire") - run("pass")) for _ in range(15))


if __name__ == "__main__":
    sys.exit(main())
