"""The size budget for recorded images."""

import msgspec

from toolwire.canonical.content import Inline, Media, Text, ToolResult
from toolwire.runtime.calls.executor import CallOutcome
from toolwire.runtime.run.events import CallRecord
from toolwire.runtime.run.recorded_run import IMAGE_REMOVED, ImageBudget
from toolwire.runtime.run.step_log import InMemoryStepLog

PICTURE = Media(kind="image", media_type="image/png", source=Inline(data="A" * 40_000))


def outcome(text: str) -> bytes:
    record = CallRecord(
        tool="computer", call_id=text, arguments={}, approval="", start=0, end=1, summary="", source="", locus="local"
    )
    result = ToolResult(call_id=text, content=(Text(text=text), PICTURE))
    return msgspec.json.encode(CallOutcome(result=result, record=record))


def content(steps: InMemoryStepLog, name: str) -> list[object]:
    known = steps.outcome(name)
    assert known is not None
    return list(msgspec.json.decode(known, type=CallOutcome).result.content or ())


def test_oldest_images_are_removed_first_and_text_stays() -> None:
    steps = InMemoryStepLog()
    bound = ImageBudget(steps, max_bytes=100_000)
    for number in range(4):
        bound.finish(f"call/{number}/a", outcome(str(number)))
    assert content(steps, "call/0/a") == [Text(text="0"), Text(text=IMAGE_REMOVED)]
    assert content(steps, "call/1/a") == [Text(text="1"), Text(text=IMAGE_REMOVED)]
    assert content(steps, "call/2/a") == [Text(text="2"), PICTURE]
    assert content(steps, "call/3/a") == [Text(text="3"), PICTURE]


def test_images_of_a_resumed_run_count() -> None:
    steps = InMemoryStepLog()
    steps.finish("call/0/a", outcome("0"))
    steps.finish("call/1/a", outcome("1"))
    bound = ImageBudget(steps, max_bytes=100_000)
    assert [bound.outcome(f"call/{number}/a") is None for number in range(2)] == [False, False]
    bound.finish("call/2/a", outcome("2"))
    assert content(steps, "call/0/a") == [Text(text="0"), Text(text=IMAGE_REMOVED)]
    assert content(steps, "call/1/a") == [Text(text="1"), PICTURE]


def test_latest_image_stays_whatever_its_size() -> None:
    steps = InMemoryStepLog()
    ImageBudget(steps, max_bytes=10).finish("call/0/a", outcome("0"))
    assert content(steps, "call/0/a") == [Text(text="0"), PICTURE]
