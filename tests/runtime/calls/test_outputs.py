"""Conversion of tool return values to content for the model."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from msgspec import Struct

from tests.support.runtime.scripted_agent import ScriptedModel, last_results, model_call, model_turn, text_turn
from toolwire import Agent, Policy
from toolwire.canonical.content import Inline, Media, Text
from toolwire.runtime.calls.outputs import MAX_ITEMS, TRUNCATION_NOTE, as_output

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
JPEG = b"\xff\xd8\xff\xe0" + bytes(range(64))


class City(pydantic.BaseModel):
    name: str
    rain: float = 0.5


@dataclass
class Trip:
    cities: list[City]


class Plan(Struct):
    trip: Trip
    seal: bytes = b""


OSLO = {"name": "Oslo", "rain": 0.5}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ([City(name="Oslo"), City(name="Oslo")], [OSLO, OSLO]),
        ({"best": City(name="Oslo")}, {"best": OSLO}),
        (Trip([City(name="Oslo")]), {"cities": [OSLO]}),
        ([Plan(Trip([City(name="Oslo")]), b"abc")], [{"trip": {"cities": [OSLO]}, "seal": "abc"}]),
        ((City(name=name) for name in ["Oslo"]), [OSLO]),
        ({"all": (number for number in range(3))}, {"all": [0, 1, 2]}),
        (City(name="Oslo", rain=float("nan")), {"name": "Oslo", "rain": None}),
        ([float("nan"), float("inf"), 1.5], [None, None, 1.5]),
        ([b"\xff\xfe\x00"], ["[3 bytes of binary data]"]),
    ],
)
def test_nested_values_are_converted_to_json(value: Any, plain: Any) -> None:
    """Nested models became their repr, generators theirs, and NaN was written as such."""
    output = as_output(value)
    text = output.content[0]
    assert isinstance(text, Text)
    assert json.loads(text.text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON")) == plain
    assert output.structured == plain


@pytest.mark.parametrize(("image", "kind"), [(PNG, "image/png"), (JPEG, "image/jpeg")], ids=["png", "jpeg"])
def test_image_bytes_become_an_image(image: bytes, kind: str) -> None:
    (part,) = as_output(image).content
    assert isinstance(part, Media)
    assert (part.kind, part.media_type) == ("image", kind)
    text, nested = as_output({"shot": image, "of": "page"}).content
    assert isinstance(text, Text)
    assert json.loads(text.text) == {"shot": f"[image 1 of this result: {kind}, {len(image)} bytes]", "of": "page"}
    assert isinstance(nested, Media)
    assert isinstance(nested.source, Inline)
    assert nested.source == part.source


def test_utf_8_bytes_become_text() -> None:
    assert as_output("Grüße".encode()).content == (Text(text="Grüße"),)
    assert as_output(b"\xff\xfe\x00").content == (Text(text="[3 bytes of binary data]"),)


def test_generator_is_collected_up_to_a_limit() -> None:
    def count() -> Iterator[int]:
        yield from itertools.count()

    def few() -> Iterator[str]:
        yield "a"
        yield "b"

    async def later() -> AsyncIterator[int]:
        for number in itertools.count():
            await asyncio.sleep(0)
            yield number

    model = ScriptedModel(
        model_turn(model_call("few", id="1"), model_call("count", id="2"), model_call("later", id="3")), text_turn("ok")
    )
    tools = [few, count, later]
    run = Agent(model, tools=tools, policy=Policy(allow=["*"])).run("go")
    assert run.text == "ok"
    texts = [result.content[0].text for result in last_results(model.requests[1])]
    assert texts[0] == '["a", "b"]'
    for text in texts[1:]:
        assert text.startswith("[0, 1, 2")
        assert text.endswith(f'{MAX_ITEMS - 1}, "{TRUNCATION_NOTE}"]')
