"""The examples in the documentation are well typed, as mypy sees them in a user's program.

Left out are those that use a vendor's SDK or start programs: only their types would be judged.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.documentation.test_examples import PYTHON, ROOT
from tests.support.deadlines import DEADLINE

FOREIGN = re.compile(r"^ *(import|from) (anthropic|openai|subprocess)\b", re.MULTILINE)
EXAMPLES = {where: block for where, block in PYTHON.items() if FOREIGN.search(block) is None}


def test_most_examples_are_checked() -> None:
    assert len(EXAMPLES) > len(PYTHON) * 3 // 4


def test_type_checker_accepts_the_examples(tmp_path: Path) -> None:
    for where, block in EXAMPLES.items():
        name = re.sub(r"\W", "_", where.removesuffix(".md"))
        (tmp_path / f"{name}.py").write_text(block, encoding="utf-8")
    options = ["--config-file=", "--check-untyped-defs", f"--cache-dir={ROOT / '.mypy_cache' / 'examples'}"]
    files = sorted(path.name for path in tmp_path.glob("*.py"))
    assert len(files) == len(EXAMPLES)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
