"""Tool search with vectors of the user: ranking by meaning, and what happens if the vectors are unusable."""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.runtime.scripted_agent import ScriptedModel, model_call, model_turn, text_turn
from toolwire.agent import Agent
from toolwire.canonical.content import Text
from toolwire.runtime.calls.approval import NoApprover
from toolwire.runtime.policy import Policy
from toolwire.runtime.search.deferred_tools import SEARCH_TOOL_NAME, DeferredTools, tool_names_in
from toolwire.runtime.search.embedding import Embed, ToolEmbeddings
from toolwire.runtime.search.index import IndexedTool
from toolwire.runtime.tool import Tool, ToolCatalog, ToolContext, ToolOutput

ENTRIES = [IndexedTool("car_rental", "Rents a car."), IndexedTool("recipe", "Finds a recipe.")]


def embed_topics(texts: list[str]) -> list[list[float]]:
    """Return a vector of two topics, driving and food."""
    return [
        [
            float(any(word in text for word in ("car", "vehicle"))),
            float(any(word in text for word in ("recipe", "eat"))),
        ]
        for text in texts
    ]


async def embed_topics_asynchronously(texts: list[str]) -> list[list[float]]:
    return embed_topics(texts)


async def do_nothing(arguments: Any, context: ToolContext) -> None: ...


def find(embed: Embed | None, query: str) -> list[str]:
    """Search among the tools as the model would."""
    tools = {entry.name: Tool(name=entry.name, description=entry.description, run=do_nothing) for entry in ENTRIES}
    search = DeferredTools(0, embed=embed).select(ToolCatalog(tools), Policy()).tools[SEARCH_TOOL_NAME]
    context = ToolContext(run="r", id="1", tool=search.name, idempotency_key="k", approver=NoApprover())

    async def run() -> ToolOutput:
        output = await search.run({"query": query}, context)
        assert isinstance(output, ToolOutput)
        return output

    output = asyncio.run(run())
    assert isinstance(output.content[0], Text)
    return list(tool_names_in(output.content))


@pytest.mark.parametrize("embed", [embed_topics, embed_topics_asynchronously])
def test_tools_are_found_by_meaning(embed: Embed) -> None:
    assert find(None, "vehicle") == []
    assert find(embed, "vehicle") == ["car_rental"]
    assert find(embed, "something to eat") == ["recipe"]


def test_vectors_of_tools_are_kept() -> None:
    batches: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        batches.append(texts)
        return embed_topics(texts)

    embeddings = ToolEmbeddings(embed)
    for query in ("vehicle", "eat"):
        assert asyncio.run(embeddings.similarities(query, ENTRIES)) == [
            float(query == "vehicle"),
            float(query == "eat"),
        ]
    assert batches == [["car_rental: Rents a car.", "recipe: Finds a recipe."], ["vehicle"], ["eat"]]


def _fail(texts: list[str]) -> list[list[float]]:
    raise ConnectionError("the server is down")


@pytest.mark.parametrize(
    ("embed", "reason"),
    [
        (_fail, "ConnectionError: the server is down"),
        (lambda texts: [[1.0]], "1 vectors for 2 texts"),
        (lambda texts: [[0.0, 0.0] for _ in texts], "zero or not finite"),
        (lambda texts: [[math.nan] for _ in texts], "zero or not finite"),
        (lambda texts: [[] for _ in texts], "vector of 0 numbers"),
        (lambda texts: [[1.0] * 5_000 for _ in texts], "vector of 5,000 numbers"),
        (lambda texts: [[1.0] * len(texts) for _ in texts], "ValueError"),
        (lambda texts: [["a"] for _ in texts], "TypeError"),
        (lambda texts: None, "TypeError"),
    ],
)
def test_unusable_vectors_leave_the_search_by_words(
    embed: Callable[[list[str]], Sequence[Sequence[float]]], reason: str
) -> None:
    with pytest.warns(RuntimeWarning, match=f"ranks by words only: embed failed: .*{reason}"):
        assert find(embed, "recipe") == ["recipe"]


def test_slow_function_is_given_up() -> None:
    async def embed(texts: list[str]) -> list[list[float]]:
        await asyncio.Event().wait()
        return []

    with pytest.warns(RuntimeWarning, match="embed timed out"):
        assert asyncio.run(ToolEmbeddings(embed, timeout=0.01).similarities("recipe", ENTRIES)) is None


def test_agent_searches_by_meaning() -> None:
    tools = [Tool(name=entry.name, description=entry.description, run=do_nothing) for entry in ENTRIES]
    model = ScriptedModel(model_turn(model_call("find_tools", {"query": "vehicle"})), text_turn("ok"))
    Agent(model, tools=tools, embed=embed_topics, search_above=0).run("go")
    assert [tool.name for tool in model.requests[1].tools or ()] == ["find_tools", "car_rental"]
