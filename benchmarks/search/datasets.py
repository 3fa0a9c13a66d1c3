"""Public tool sets with queries by other people: BFCL, and StableToolBench and MetaTool where present.

BFCL comes from the package `bfcl-eval`, of which only the data files are read. The others are read from the folder
`TOOLWIRE_TOOL_SEARCH` (or `../shared/corpus/tool_search`): `NAME.tools.jsonl` with name, description and parameters,
and `NAME.queries.jsonl` with a query and the names of the tools that answer it.
"""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolwire.runtime.search.index import IndexedTool

_BFCL_VERSION = "2026.3.23"
_CACHE = Path(".cache/bench-search")
_BFCL_CATEGORIES = (
    "simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple",
)  # fmt: skip


_BFCL_OTHER_TOOLS = ("irrelevance", "live_irrelevance", "live_relevance")  # questions that no function answers


class Query(Struct, frozen=True):
    text: str
    tools: frozenset[str]


class Dataset(Struct, frozen=True):
    name: str
    tools: list[IndexedTool]
    queries: list[Query]


def load_datasets() -> list[Dataset]:
    """Return the public tool sets that are available."""
    folder = Path(os.environ.get("TOOLWIRE_TOOL_SEARCH", "../shared/corpus/tool_search"))
    found = [
        _load_folder(name, folder / file)
        for name, file in (("StableToolBench", "stable_tool_bench"), ("MetaTool", "meta_tool"))
        if (folder / f"{file}.tools.jsonl").is_file()
    ]
    try:
        return [*found, _load_bfcl()]
    except subprocess.CalledProcessError:
        print(f"bfcl-eval {_BFCL_VERSION} can't be downloaded: measuring without BFCL", file=sys.stderr)
        return found


def _load_folder(name: str, stem: Path) -> Dataset:
    """Read a tool set from two files of JSON lines."""
    tools = [
        IndexedTool(tool["name"], tool["description"], tool["parameters"])
        for tool in _json_lines(Path(f"{stem}.tools.jsonl").read_bytes())
    ]
    queries = [
        Query(query["query"], frozenset(query["tools"]))
        for query in _json_lines(Path(f"{stem}.queries.jsonl").read_bytes())
    ]
    return Dataset(name, tools, queries)


def _load_bfcl() -> Dataset:
    """Read the single-turn questions of BFCL v4, with the functions of all of them as one catalog."""
    tools, queries = dict[str, IndexedTool](), list[Query]()
    with zipfile.ZipFile(_download_bfcl()) as wheel:
        for category in _BFCL_CATEGORIES:
            file = f"BFCL_v4_{category}.json"
            questions = _json_lines(wheel.read(f"bfcl_eval/data/{file}"))
            answers = _json_lines(wheel.read(f"bfcl_eval/data/possible_answer/{file}"))
            called = {
                answer["id"]: frozenset(name for call in answer["ground_truth"] for name in call) for answer in answers
            }
            for question in questions:
                _add_tools(tools, question)
                text = " ".join(message["content"] for message in question["question"][0] if message["role"] == "user")
                queries.append(Query(text, called[question["id"]]))
        for category in _BFCL_OTHER_TOOLS:
            for question in _json_lines(wheel.read(f"bfcl_eval/data/BFCL_v4_{category}.json")):
                _add_tools(tools, question)
    return Dataset("BFCL v4", list(tools.values()), queries)


def _add_tools(tools: dict[str, IndexedTool], question: dict[str, Any]) -> None:
    """Add the functions of a question, the first of each name."""
    for function in question["function"]:
        tool = IndexedTool(function["name"], function["description"], function["parameters"])
        tools.setdefault(tool.name, tool)


def _download_bfcl() -> Path:
    """Return the wheel of `bfcl-eval`, downloaded once; its code is never run."""
    if not (wheels := sorted(_CACHE.glob(f"bfcl_eval-{_BFCL_VERSION}-*.whl"))):
        package = f"bfcl-eval=={_BFCL_VERSION}"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(_CACHE)]
        subprocess.run([*command, package], check=True)
        wheels = sorted(_CACHE.glob(f"bfcl_eval-{_BFCL_VERSION}-*.whl"))
    return wheels[0]


def _json_lines(data: bytes) -> Iterable[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines() if line.strip()]
