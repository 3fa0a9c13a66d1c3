"""SQL injection through ids and patterns has no effect."""

import ast
from pathlib import Path

import pytest

import toolwire
from tests.support.runtime.journal_records import make_batch
from toolwire.journal.records import Record
from toolwire.journal.runs import RunStore
from toolwire.journal.store import JournalError, open_record_store

SIGNS = [
    "' OR 1=1 --",
    '" OR "1"="1',
    "%",
    "_",
    "run_%",
    "\\",
    "a'; DROP TABLE steps; --",
    "\0",
    "x" * 100_000,
    "*",
    "?1",
]


@pytest.mark.parametrize("sign", SIGNS)
def test_special_characters_in_ids_do_not_change_queries(sign: str, tmp_path: Path) -> None:
    store = open_record_store(tmp_path / "journal.db", max_age_days=1, max_bytes=1_000_000)
    store.add(make_batch([Record(id="one", at=1e12, toolwire="0", client="anthropic", path="/")]))
    assert store.find(sign) is None
    runs = RunStore(tmp_path / "runs.db")
    runs.begin("run_1", b"{}")
    with pytest.raises(JournalError, match="no run"):
        runs.find(sign)
    runs.begin(sign, b"its own").finish(sign, b"done")
    assert runs.find(sign).metadata == b"its own"
    assert [step.name for step in runs.steps(sign)] == [sign]
    assert runs.find("run_1").metadata == b"{}"
    store.close()
    runs.close()


def test_sql_statements_are_constants() -> None:
    """Every executed statement is a constant or a name bound to one, never built from a value."""
    executing = ("execute", "executemany", "select", "change")
    ours = ("name", "column", "version", "milliseconds")  # words and whole numbers of ours
    made_of_values = []
    for path in sorted(Path(toolwire.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            if node.func.attr in executing and isinstance(node.args[0], ast.BinOp | ast.Call):
                made_of_values.append(f"{path.name}:{node.lineno}")
            if node.func.attr == "execute" and isinstance(statement := node.args[0], ast.JoinedStr):
                names = [ast.unparse(one.value) for one in statement.values if isinstance(one, ast.FormattedValue)]
                made_of_values += [f"{path.name}:{node.lineno} {name}" for name in names if name not in ours]
    assert made_of_values == []


def test_like_patterns_are_constants() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(toolwire.__file__).parent.rglob("*.py")]
    assert not any(" LIKE " in source or " GLOB " in source for source in sources)
