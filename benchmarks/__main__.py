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
from benchmarks import recovery
from benchmarks.steps import step_milliseconds, sync_milliseconds
from benchmarks.workloads import (
    CODE,
    anthropic_request,
    frames_of,
    long_texts_request,
    small_request,
    translated_request,
    translated_stream,
)

ROUNDS = 60
REQUEST_LIMIT, STREAM_LIMIT, GROWTH_LIMIT, IMPORT_LIMIT, STEP_LIMIT = 2.5, 3.0, 2.4, 50.0, 1.0
RECOVERY_LIMIT = 3.0
CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai-chat", "openai-responses", "anthropic", "gemini"
REQUEST_PAIRS = ((ANTHROPIC, CHAT), (ANTHROPIC, RESPONSES), (ANTHROPIC, GEMINI), (ANTHROPIC, ANTHROPIC))
OTHER_REQUEST_PAIRS = ((GEMINI, CHAT), (GEMINI, GEMINI), (RESPONSES, CHAT), (RESPONSES, RESPONSES))
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
    print(f"medians of {ROUNDS} rounds that alternate between work and baseline; CPU time\n")
    exceeded = [label for label, figure, limit in _rows() if not _is_within_limit(label, figure, limit)]
    disk = f"one tool step on this disk, ms (one fsync: {sync_milliseconds():.2f} ms)"
    print(f"  {disk:58} {step_milliseconds(None):6.2f}   no limit: four synchronous writes")
    texts = long_texts_request()
    print("\nWithout a limit: a request of long plain texts, which orjson mostly copies:")
    print(f"  {ANTHROPIC} -> {CHAT}, {len(texts):,} bytes".ljust(61) + f"{_request_ratio(texts, ANTHROPIC, CHAT):6.2f}")
    print("\nWithout a limit: requests of other clients, whose items and contents are decoded one by one:")
    for source, target in OTHER_REQUEST_PAIRS:
        request = translated_request(source)
        label = f"{source} -> {target}, {len(request):,} bytes"
        print(f"  {label:58} {_request_ratio(request, source, target):6.2f}")
    print("\nLooking for calls in a stream with code, whose brackets may begin marks, percent; no limit:")
    for (source, target), size in recovery.cases():
        percent = recovery.recovery_percent(source, target, size, lambda _: CODE)
        print(f"  {f'{source} -> {target}, {size} at a time':58} {percent:6.2f}")
    print(f"\nA small request ({len(small_request()):,} bytes), µs per translation; no limit:")
    for protocol in PROTOCOLS:
        same_protocol, to_chat = _small_microseconds(protocol, protocol), _small_microseconds(protocol, CHAT)
        print(f"  {protocol:20} same protocol {same_protocol:5.0f}   to {CHAT} {to_chat:5.0f}")
    print(f"\n{len(exceeded)} over the limit" if exceeded else "\nall within their limits")
    return 1 if exceeded else 0


def _is_within_limit(label: str, figure: float, limit: float) -> bool:
    within_limit = figure <= limit
    print(f"  {label:58} {figure:6.2f}   at most {limit:g}{'' if within_limit else '   OVER'}", flush=True)
    return within_limit


def _rows() -> Iterator[tuple[str, float, float]]:
    """Yield label, ratio and limit, measured lazily."""
    print("A request from bytes to bytes, relative to an orjson round trip of the same bytes:")
    for source, target in REQUEST_PAIRS:
        request = translated_request(source)
        label = f"{source} -> {target}, {len(request):,} bytes"
        yield label, _request_ratio(request, source, target), REQUEST_LIMIT
    print("\nA stream, relative to decoding and encoding the same events with msgspec:")
    for source, target in STREAM_PAIRS:
        stream = translated_stream(source)
        label = f"{source} -> {target}, {len(frames_of(stream))} events"
        yield label, _stream_ratio(stream, source, target), STREAM_LIMIT
    print("\nLooking for calls in the text of a stream without any, percent of the translation:")
    for (source, target), size in recovery.cases():
        yield f"{source} -> {target}, {size} at a time", recovery.recovery_percent(source, target, size), RECOVERY_LIMIT
    print("\nGrowth and import time:")
    yield "twice the messages, relative to once", _growth(lambda scale: anthropic_request(100 * scale)), GROWTH_LIMIT
    arguments = _growth(lambda scale: anthropic_request(20, arguments=50_000 * scale))
    yield "twice the arguments, relative to once", arguments, GROWTH_LIMIT
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

    def baseline() -> None:
        for frame in frames:
            msgspec.json.encode(msgspec.json.decode(frame))

    return _ratio(lambda: b"".join(toolwire.translate_stream([stream], source, target)), baseline)


def _ratio(work: Callable[[], object], baseline: Callable[[], object]) -> float:
    """Return the median ratio of paired runs.

    As in `timeit`, the garbage collector is off, since garbage of one run would count for the other.
    """
    for warm in (work, baseline):
        for _ in range(5):
            warm()
    gc.collect()
    gc.disable()
    try:
        return statistics.median(_seconds(work) / _seconds(baseline) for _ in range(ROUNDS))
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
