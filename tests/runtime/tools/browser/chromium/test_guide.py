"""The program in the browser guide works as described."""

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[5] / "docs" / "guides" / "browser.md"


def test_program_in_the_guide_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"^```text\n(import .*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    path = tmp_path / "example.py"
    path.write_text(program, "utf-8")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "[Ada]\nHello, Ada\n", done.stderr
