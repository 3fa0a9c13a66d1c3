"""An MCP server with one tool, started by the agent, that reads a file."""

import json
import sys
from pathlib import Path
from typing import Any

TOOL = {
    "name": "read_out",
    "description": "Reads out a file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


def answer(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            said = {"name": "clerk", "version": "1"}
            return {"protocolVersion": parameters["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": said}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            text = Path(parameters["arguments"]["path"]).read_text(encoding="utf-8")
            return {"content": [{"type": "text", "text": text}]}
        case _:
            return {}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            told = {"jsonrpc": "2.0", "id": asked["id"], "result": answer(asked["method"], asked.get("params", {}))}
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()
