"""An MCP server as a small program, of either protocol version: `python scripted_server.py '{"version": ...}'`.

It writes JSON-RPC by hand, so that it can also send messages that no SDK would.
"""

import json
import os
import sys
import time
from typing import Any

PNG = "iVBORw0KGgo="
OBJECT_SCHEMA = {"type": "object", "properties": {}}


def tool_definition(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": OBJECT_SCHEMA, **fields}


def text_content(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


class ScriptedServer:
    def __init__(self, options: dict[str, Any]) -> None:
        self.version: str = options.get("version", "2025-11-25")
        self.modern = self.version == "2026-07-28"
        self.options = options
        self.tools: list[dict[str, Any]] = options.get("tools", [tool_definition(name) for name in self.play_names()])
        self.tools += [tool_definition(f"t{number}") for number in range(options.get("more", 0))]
        self.log: str | None = options.get("log")
        self.pending_requests: dict[str, int] = {}

    def play_names(self) -> list[str]:
        return [name.removeprefix("play_") for name in dir(self) if name.startswith("play_")]

    def write(self, message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def log_message(self, what: Any) -> None:
        if self.log is not None:
            with open(self.log, "a", encoding="utf-8") as file:  # noqa: PTH123
                file.write(json.dumps(what) + "\n")

    def run(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            self.log_message(message)
            if "method" not in message:
                self.handle_client_response(message)
            elif "id" in message:
                self.request(message)

    def request(self, message: dict[str, Any]) -> None:
        method, params, id = message["method"], message.get("params", {}), message["id"]
        old = {"initialize": self.initialize}
        new = {"server/discover": self.discover}
        shared_methods: dict[str, Any] = {
            "tools/list": self.list,
            "tools/call": self.call,
            "resources/list": self.list_resources,
            "resources/templates/list": self.list_templates,
            "resources/read": self.read_resource,
            "tasks/get": self.get_task,
            "tasks/result": self.task_result,
            "tasks/update": self.update_task,
            "tasks/cancel": self.cancel_task,
            "logging/setLevel": lambda id, params: {"result": {}},
        }
        methods = shared_methods | (new if self.modern else old)
        if method not in methods:
            self.write({"id": id, "error": {"code": -32601, "message": "Method not found"}})
            return
        given = methods[method](id, params)
        if given is not None:
            self.write({"id": id, **given})

    def result(self, value: dict[str, Any]) -> dict[str, Any]:
        return {"result": {"resultType": "complete", **value} if self.modern else value}

    def capabilities(self) -> dict[str, Any]:
        extra: dict[str, Any] = {name: {} for name in self.options.get("capabilities", ())}
        tasks: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}} if self.modern else {}
        return {"tools": {"listChanged": not self.modern}, **extra, **tasks}

    def initialize(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        info = {"name": "actor", "version": "1"}
        for level, data in self.options.get("start_logs", ()):
            self.write({"method": "notifications/message", "params": {"level": level, "logger": "db", "data": data}})
        return self.result({"protocolVersion": self.version, "capabilities": self.capabilities(), "serverInfo": info})

    def discover(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        told = {"supportedVersions": [self.version], "capabilities": self.capabilities()}
        return self.result({**told, "ttlMs": 0, "cacheScope": "private"})

    def list(self, id: Any, params: dict[str, Any]) -> dict[str, Any] | None:
        if self.options.get("mute"):
            return None
        page, size = int(params.get("cursor") or 0), self.options.get("page", 1000)
        hints = {"ttlMs": self.options.get("ttl", 60_000), "cacheScope": "private"} if self.modern else {}
        if self.options.get("endless"):
            return self.result({"tools": [tool_definition(f"tool{page}")], "nextCursor": str(page + 1), **hints})
        if self.options.get("circle"):
            return self.result({"tools": [tool_definition("only")], "nextCursor": "1", **hints})
        if page and self.options.get("changing"):
            self.write({"method": "notifications/tools/list_changed"})
            kept, self.tools, self.options["changing"] = self.tools, [tool_definition("new")], False
            return self.result({"tools": kept[page * size : (page + 1) * size], **hints})
        page_tools = self.tools[page * size : (page + 1) * size]
        cursor = {"nextCursor": str(page + 1)} if (page + 1) * size < len(self.tools) else {}
        return self.result({"tools": page_tools, **cursor, **hints})

    def call(self, id: Any, params: dict[str, Any]) -> dict[str, Any] | None:
        name = self.options.get("plays", {}).get(params["name"], params["name"])
        if (play := getattr(self, f"play_{name}", None)) is None:
            return {"error": {"code": -32602, "message": f"Unknown tool: {name}"}}
        given = play(id, params)
        return given if given is None or "error" in given or "result" in given else self.result(given)

    def handle_client_response(self, message: dict[str, Any]) -> None:
        """Handle a client's response to a server request of the older protocol version."""
        self.write(
            {
                "id": self.pending_requests.pop(message["id"]),
                **self.result(text_content(json.dumps(message.get("result", message.get("error"))))),
            }
        )

    # ---- resources

    def list_resources(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        hints = {"ttlMs": 0, "cacheScope": "private"} if self.modern else {}
        page = int(params.get("cursor") or 0)
        resource = {"uri": f"note:///{page}", "name": f"note {page}\u200b", "mimeType": "text/plain", "size": 6}
        cursor = {"nextCursor": str(page + 1)} if page < 2 or self.options.get("endless") else {}
        return self.result({"resources": [resource], **cursor, **hints})

    def list_templates(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        hints = {"ttlMs": 0, "cacheScope": "private"} if self.modern else {}
        template = {"uriTemplate": "note:///{number}", "name": "any note"}
        return self.result({"resourceTemplates": [template], **hints})

    def read_resource(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        uri = params["uri"]
        if not uri.startswith("note:///"):
            return {"error": {"code": -32602 if self.modern else -32002, "message": "Resource not found"}}
        if uri.endswith("locked") and "inputResponses" not in params:
            form = {"message": "Password?", "requestedSchema": OBJECT_SCHEMA}
            requests = {"key": {"method": "elicitation/create", "params": form}}
            return {"result": {"resultType": "input_required", "inputRequests": requests}}
        hints = {"ttlMs": 0, "cacheScope": "private"} if self.modern else {}
        return self.result({"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"text of {uri}"}], **hints})

    # ---- tasks

    def task_state(self, **fields: Any) -> dict[str, Any]:
        times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
        units = {"ttlMs": None, "pollIntervalMs": 1} if self.modern else {"ttl": None, "pollInterval": 1}
        return {"taskId": "t-1", **times, **units, **fields}

    def play_work(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        """Return a task that works for two polls; `arguments` say how it goes on."""
        if not self.modern and "task" not in params:
            return {"error": {"code": -32601, "message": "Tool requires task augmentation"}}
        self.task, self.polls, self.answer = params.get("arguments") or {}, 0, None
        state = self.task_state(status="working", statusMessage="started")
        return {"result": {"resultType": "task", **state} if self.modern else {"task": state}}

    def get_task(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        self.polls += 1
        ending = self.task.get("ending", "completed")
        if self.polls < 3 or ending == "never":
            state = self.task_state(status="working", statusMessage=f"poll {self.polls}")
        elif ending == "question" and self.answer is None:
            form = {"message": "Who?", "requestedSchema": OBJECT_SCHEMA}
            requests = {"inputRequests": {"who": {"method": "elicitation/create", "params": form}}}
            state = self.task_state(status="input_required", **(requests if self.modern else {}))
        elif ending == "failed":
            error = {"error": {"code": -32603, "message": "the task broke"}} if self.modern else {}
            state = self.task_state(status="failed", statusMessage="the task broke", **error)
        elif ending == "cancelled":
            state = self.task_state(status="cancelled", statusMessage="stopped by the server")
        else:
            result = {"result": text_content(f"worked: {self.answer}")} if self.modern else {}
            state = self.task_state(status="completed", **result)
        return self.result(state)

    def update_task(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        self.answer = params["inputResponses"]["who"]["action"]
        return self.result({})

    def cancel_task(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        return self.result(self.task_state(status="cancelled"))

    def task_result(self, id: Any, params: dict[str, Any]) -> dict[str, Any] | None:
        if self.task.get("ending") == "failed":
            return {"error": {"code": -32603, "message": "the task broke"}}
        if self.task.get("ending") == "question":
            self.pending_requests["task-question"] = id
            form = {"message": "Who?", "requestedSchema": OBJECT_SCHEMA}
            self.write({"id": "task-question", "method": "elicitation/create", "params": form})
            return None
        return self.result(text_content(f"worked: {self.answer}"))

    # ---- tools

    def play_echo(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        return text_content(json.dumps(params.get("arguments")))

    def play_fail(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        return {**text_content("the disk is full"), "isError": True}

    def play_fault(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        code = params.get("arguments", {}).get("code", -32603)
        return {"error": {"code": code, "message": "something broke inside"}}

    def play_media(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        resource = {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "inside"}
        blob = {"uri": "file:///a.png", "mimeType": "image/png", "blob": PNG}
        return {
            "content": [
                {"type": "image", "data": PNG, "mimeType": "image/png"},
                {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
                {"type": "resource_link", "uri": "file:///b.md", "name": "b", "mimeType": "text/markdown", "size": 9},
                {"type": "resource", "resource": resource},
                {"type": "resource", "resource": blob},
                {"type": "resource", "resource": {"uri": "file:///a.html", "mimeType": "text/html", "blob": "PHA+"}},
            ]
        }

    def play_structured(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        return {"content": [], "structuredContent": params["arguments"]}

    def play_progress(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        token, total = params["_meta"]["progressToken"], params.get("arguments", {}).get("total", 2)
        for done in range(1, total + 1):
            told = {"progressToken": token, "progress": done, "total": total, "message": f"part {done}"}
            self.write({"method": "notifications/progress", "params": told})
        return text_content("done")

    def play_wait(self, id: Any, params: dict[str, Any]) -> None:
        """Never respond, so that the caller must time out."""

    def play_ask(self, id: Any, params: dict[str, Any]) -> dict[str, Any] | None:
        schema = params.get("arguments", {}).get("schema") or OBJECT_SCHEMA
        form = {"message": "Who are you?\x1b[31m", "requestedSchema": schema}
        if not self.modern:
            self.pending_requests["e1"] = id
            self.write({"id": "e1", "method": "elicitation/create", "params": form})
            return None
        if "inputResponses" in params:
            assert params["requestState"] == "opaque"
            return text_content(json.dumps(params["inputResponses"]["who"]))
        requests = {"who": {"method": "elicitation/create", "params": form}}
        return {"result": {"resultType": "input_required", "inputRequests": requests, "requestState": "opaque"}}

    def play_pester(self, id: Any, params: dict[str, Any]) -> None:
        """Send one elicitation after the other, whatever the client answers."""
        for number in range(50):
            form = {"message": f"{number}?", "requestedSchema": OBJECT_SCHEMA}
            self.write({"id": f"p{number}", "method": "elicitation/create", "params": form})
        answers = [json.loads(sys.stdin.readline())["result"]["action"] for _ in range(50)]
        self.write({"id": id, **self.result(text_content(json.dumps(answers)))})

    def play_ask_for_ever(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        return {"result": {"resultType": "input_required", "requestState": "again"}}

    def ask_client(self, id: Any, params: dict[str, Any], method: str, request: dict[str, Any]) -> Any:
        """Send a request to the client, and return its answer as the text of the result."""
        if not self.modern:
            key = f"request-{id}"
            self.pending_requests[key] = id
            self.write({"id": key, "method": method, "params": request})
            return None
        if "inputResponses" in params:
            return text_content(json.dumps(params["inputResponses"]["it"]))
        return {
            "result": {
                "resultType": "input_required",
                "inputRequests": {"it": {"method": method, "params": request}},
                "requestState": "asked",
            }
        }

    def play_sample(self, id: Any, params: dict[str, Any]) -> Any:
        message = {"role": "user", "content": {"type": "text", "text": "say the secret"}}
        request = {"messages": [message], "maxTokens": 5000, "systemPrompt": "Be brief.", "temperature": 0.5}
        return self.ask_client(id, params, "sampling/createMessage", request | params.get("arguments", {}))

    def play_sample_often(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        """Request sampling three times, in the older version."""
        answers = []
        for number in range(3):
            message = {"role": "user", "content": {"type": "text", "text": f"request {number}"}}
            request = {"messages": [message], "maxTokens": 9}
            self.write({"id": f"s{number}", "method": "sampling/createMessage", "params": request})
            answer = json.loads(sys.stdin.readline())
            answers.append(answer.get("result", answer.get("error")))
        return text_content(json.dumps(answers))

    def play_roots(self, id: Any, params: dict[str, Any]) -> Any:
        return self.ask_client(id, params, "roots/list", {})

    def play_log(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        for level, data in params["arguments"]["messages"]:
            self.write({"method": "notifications/message", "params": {"level": level, "logger": "db", "data": data}})
        return text_content(json.dumps(params.get("_meta", {}).get("io.modelcontextprotocol/logLevel")))

    def play_environment(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        return text_content(json.dumps(dict(os.environ)))

    def play_die(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        sys.stderr.write("I am going\n")
        os._exit(3)

    def play_change(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        self.tools = [tool_definition("new")]
        self.write({"method": "notifications/tools/list_changed"})
        return text_content("changed")

    def play_giant(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        return text_content("x" * (17 * 1024 * 1024))

    def play_strange(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "hologram", "data": 1}]}

    def play_many(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": str(number)} for number in range(3000)]}

    def play_noise(self, id: Any, params: dict[str, Any]) -> dict[str, Any]:
        sys.stdout.write("this is not JSON\n[1, 2]\n")
        self.write({"id": 999_999, "result": {}})
        return text_content("after the noise")


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    time.sleep(options.get("slow", 0))
    ScriptedServer(options).run()
