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


def respond(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            info = {"name": "clerk", "version": "1"}
            return {"protocolVersion": parameters["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            text = Path(parameters["arguments"]["path"]).read_text(encoding="utf-8")
            return {"content": [{"type": "text", "text": text}]}
        case _:
            return {}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            response = {
                "jsonrpc": "2.0",
                "id": request["id"],
                "result": respond(request["method"], request.get("params", {})),
            }
            sys.stdout.write(json.dumps(response) + "\n")
            sys.stdout.flush()
