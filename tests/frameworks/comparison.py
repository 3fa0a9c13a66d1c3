"""The programs of Pydantic AI in the comparison run as they stand, on the simulated model."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.documentation.compared_programs import compared_programs
from tests.support.servers.asgi import serve_app
from toolwire.upstream.simulator.app import Simulator


def check_compared_programs(environment: Path) -> Iterator[str]:
    """Yield what is wrong with the programs, run by the Python of the environment."""
    with serve_app(Simulator()) as address:
        variables = {**os.environ, "OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "none"}
        for task, (_, program) in compared_programs().items():
            command = [str(environment / "bin" / "python"), "-c", program]
            run = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
            if run.returncode:
                yield f"Pydantic AI, {task}: {run.stderr.strip()}"


if __name__ == "__main__":
    import sys

    failures = list(check_compared_programs(Path(sys.argv[1])))
    sys.stdout.write("\n".join(failures) + f"\n{len(compared_programs()) - len(failures)} programs passed\n")
    sys.exit(bool(failures))
