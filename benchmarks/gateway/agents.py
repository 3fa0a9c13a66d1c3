"""Random agents: tools of their own, and conversations that grow turn by turn, as Anthropic and Chat messages.

`NONCE` stands in every text and id. The load generator replaces it for each conversation, so no two are equal.
"""

import json
from random import Random
from typing import Any

from msgspec import Struct

NONCE = "@nonce@@"

_SYLLABLES = (
    "ka",
    "lo",
    "mi",
    "ren",
    "tus",
    "val",
    "dor",
    "sep",
    "quin",
    "har",
    "bex",
    "fi",
    "nol",
    "gra",
    "umi",
    "zet",
)
_CJK = "工具调用请求响应错误日志文件测试数据库连接超时重试キャッシュ設定変更実行結果ファイル読込成功失敗서버응답오류"
_ODD = ['"quoted"', "C:\\temp\\run", "\ttab", "naïve", "→", "😀", "{}", "<b>", "'it'", "\u2028", "/usr/bin", "&amp;"]
_SERVERS = ("openai", "vllm", "deepseek", "llamacpp")


class Call(Struct):
    id: str
    name: str
    input: dict[str, Any]


class Turn(Struct):
    """A user message, and the model's answer to it."""

    # The answer's number in the traffic.
    number: int
    # What the user writes; may be empty where the message has results.
    question: str
    # One result per call of the previous turn: plain text or a list of texts.
    results: list[str | list[str]]
    failed: bool
    text: str
    calls: list[Call]

    @property
    def markers(self) -> int:
        """The number of the answer's markers: two in its text, one in each call."""
        return 2 * bool(self.text) + len(self.calls)


class Agent(Struct):
    # 8 hex digits in the markers of its tools.
    id: str
    server: str
    system: str
    tools: list[dict[str, Any]]
    turns: list[Turn]


def marker(kind: str, number: int, nonce: str = NONCE) -> str:
    """Return the text that ties answers to requests; `load.c` and `upstream.c` look for it."""
    return f"~{kind}{nonce}{number:06x}"


class Writer:
    """A source of random texts, tools and turns."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._words = ["".join(random.choices(_SYLLABLES, k=random.randint(1, 4))) for _ in range(1500)]
        self._words += ["".join(random.choices(_CJK, k=random.randint(2, 6))) for _ in range(150)]
        self._words += _ODD * 4

    def prose(self, low: int, high: int) -> str:
        """Return a text of about this many characters: mostly short ones, as a log-uniform distribution has."""
        size = low * (high / low) ** self.random.random()
        words = self.random.choices(self._words, k=max(1, round(size / 7.5)))
        for index in range(11, len(words), 12):
            words[index] += ".\n"
        return " ".join(words)

    def name(self) -> str:
        return "_".join(self.random.sample(self._words[:1500], 2)) + f"_{self.random.randrange(1000)}"

    def agent(self) -> Agent:
        """Return an agent with 5 to 30 tools, about 25 KB."""
        id, count = f"{self.random.getrandbits(32):08x}", self.random.randint(5, 30)
        tools = [self._tool(id, number, properties=self.random.randint(1, 8)) for number in range(count)]
        return Agent(id, self.server(), self.prose(1500, 5000), tools, [])

    def small_agent(self) -> Agent:
        """Return an agent with 5 small tools, about 2 KB."""
        id = f"{self.random.getrandbits(32):08x}"
        tools = [self._tool(id, number, properties=1, describe=(30, 60)) for number in range(5)]
        return Agent(id, self.server(), self.prose(40, 80), tools, [])

    def server(self) -> str:
        return self.random.choice(_SERVERS)

    def _tool(self, agent: str, number: int, properties: int, describe: tuple[int, int] = (60, 900)) -> dict[str, Any]:
        members: dict[str, Any] = {"reason": {"type": "string"}}
        members |= {self.name(): self._property(depth=0) for _ in range(properties)}
        required = self.random.sample(list(members), self.random.randint(0, len(members)))
        schema: dict[str, Any] = {"type": "object", "properties": members}
        if required:
            schema["required"] = required
        if self.random.random() < 0.5:
            schema["additionalProperties"] = False
        if self.random.random() < 0.4:
            schema["$schema"] = "http://json-schema.org/draft-07/schema#"
        description = marker("t", number, agent) + " " + self.prose(*describe)
        return {"name": self.name()[:60], "description": description, "input_schema": schema}

    def _property(self, depth: int) -> dict[str, Any]:
        random = self.random
        described: dict[str, Any] = {"description": self.prose(15, 90)}
        kinds = ["string", "integer", "number", "boolean", "enum", "nullable", "strings", "anyOf"]
        match random.choice(kinds if depth else [*kinds, "objects", "object"]):
            case "integer":
                return described | {
                    "type": "integer",
                    "minimum": random.randint(0, 5),
                    "maximum": random.randint(9, 10**6),
                }
            case "enum":
                return described | {"type": "string", "enum": [self.name() for _ in range(random.randint(2, 6))]}
            case "nullable":
                return described | {"type": ["string", "null"], "default": None}
            case "strings":
                return described | {"type": "array", "items": {"type": "string"}, "minItems": random.randint(0, 2)}
            case "anyOf":
                return described | {"anyOf": [{"type": "string"}, {"type": "integer"}]}
            case "object":
                return described | self._object(depth)
            case "objects":
                return described | {"type": "array", "items": self._object(depth)}
            case kind:
                return described | {"type": kind}

    def _object(self, depth: int) -> dict[str, Any]:
        members = {self.name(): self._property(depth + 1) for _ in range(self.random.randint(1, 4))}
        return {"type": "object", "properties": members, "required": list(members)[:1]}

    def add_turn(
        self, agent: Agent, number: int, *, last: bool = False, text_size: tuple[int, int] = (20, 700)
    ) -> None:
        """Add a user message and its answer; the last one calls no tool."""
        random = self.random
        previous = agent.turns[-1] if agent.turns else None
        count = len(previous.calls) if previous else 0
        results: list[str | list[str]] = []
        question = f"{self.prose(30, 600)} {marker('u', number)}" if not count or random.random() < 0.2 else ""
        for index in range(count):
            text = f"{NONCE} {self.prose(50, 4000)}"
            if index == count - 1 and not question:
                text = f"{text} {marker('u', number)}"
            blocks = [self.prose(40, 600), text] if random.random() < 0.3 else [text]
            results.append(blocks if random.random() < 0.4 else text)
        number_of_calls = 0 if last else 2 if random.random() < 0.15 else 1
        text = self.prose(*text_size) if last or random.random() < 0.8 else ""
        if text:
            text = f"{marker('a', number)} {text} {marker('a', number)}"
        calls = [self._call(agent, number, index) for index in range(number_of_calls)]
        agent.turns.append(Turn(number, question, results, random.random() < 0.05, text, calls))

    def _call(self, agent: Agent, number: int, index: int) -> Call:
        """Return a call that fits its schema, but for one in twenty."""
        tool = self.random.choice(agent.tools)
        arguments: dict[str, Any] = {"reason": marker("a", number)}
        for name, schema in tool["input_schema"]["properties"].items():
            if name != "reason" and (name in tool["input_schema"].get("required", ()) or self.random.random() < 0.7):
                arguments[name] = self._value(schema)
        if self.random.random() < 0.05:
            arguments["other"] = {"reason": 1} if self.random.random() < 0.5 else []
        return Call(_call_id(agent.server, number, index), tool["name"], arguments)

    def _value(self, schema: dict[str, Any]) -> Any:
        random = self.random
        if "enum" in schema:
            return random.choice(schema["enum"])
        match schema.get("type"):
            case "integer":
                return random.randint(schema["minimum"], schema["maximum"])
            case "number":
                return round(random.uniform(-1000, 1000), 3)
            case "boolean":
                return random.random() < 0.5
            case "array":
                return [self._value(schema["items"]) for _ in range(random.randint(2, 4))]
            case "object":
                return {name: self._value(member) for name, member in schema["properties"].items()}
            case _:
                return self.prose(8, 300)


def _call_id(server: str, number: int, index: int) -> str:
    """Return an id in the server's form."""
    unique = f"{NONCE}{number:06x}{index:02x}"
    match server:
        case "openai":
            return f"call_{unique}Xn0aTq2R"
        case "vllm":
            return f"chatcmpl-tool-{unique}5b0c9d1e7f2a4836"
        case "deepseek":
            return f"call_{index:02}_{unique}mKw8vPzL"
        case _:
            return f"{unique}Qh7Yd3LsVb6NtRzC"


# ---- as requests


def to_json(value: Any) -> str:
    """Encode as JavaScript and most SDKs do: compact, not escaped beyond need."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def anthropic_parts(agent: Agent) -> list[tuple[str, str]]:
    """Return user and assistant messages in turn, each as it is and with `cache_control`."""
    parts = []
    calls: list[Call] = []
    for turn in agent.turns:
        blocks: list[dict[str, Any]] = []
        for call, result in zip(calls, turn.results, strict=True):
            content = result if isinstance(result, str) else [{"type": "text", "text": text} for text in result]
            block = {"tool_use_id": call.id, "type": "tool_result", "content": content}
            blocks.append(block | {"is_error": True} if turn.failed else block)
        if turn.question:
            blocks.append({"type": "text", "text": turn.question})
        plain = to_json({"role": "user", "content": blocks})
        blocks[-1] = blocks[-1] | {"cache_control": {"type": "ephemeral"}}
        parts.append((plain, to_json({"role": "user", "content": blocks})))
        answer: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
        answer += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.input} for call in turn.calls]
        text = to_json({"role": "assistant", "content": answer})
        parts.append((text, text))
        calls = turn.calls
    return parts


def anthropic_tail(agent: Agent, *, streamed: bool) -> str:
    system = [
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": agent.system, "cache_control": {"type": "ephemeral"}},
    ]
    rest = {"system": system, "tools": agent.tools, "metadata": {"user_id": f"user_{NONCE}"}, "max_tokens": 32_000}
    return "]," + to_json(rest | {"stream": True} if streamed else rest)[1:]


def chat_messages(turn: Turn, calls: list[Call]) -> list[dict[str, Any]]:
    """Return the tool and user messages of a turn."""
    messages = []
    for call, result in zip(calls, turn.results, strict=True):
        content = result if isinstance(result, str) else [{"type": "text", "text": text} for text in result]
        messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    return [*messages, {"role": "user", "content": turn.question}] if turn.question else messages


def chat_answer(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": to_json(call.input)}}
            for call in turn.calls
        ]
    return message


def chat_parts(agent: Agent) -> list[tuple[str, str]]:
    """Return the same conversation for Chat Completions, the system message with the first part."""
    parts: list[tuple[str, str]] = []
    calls: list[Call] = []
    for turn in agent.turns:
        messages = chat_messages(turn, calls)
        if not parts:
            messages.insert(0, {"role": "system", "content": agent.system})
        text = to_json(messages)[1:-1]
        answer = to_json(chat_answer(turn))
        parts += [(text, text), (answer, answer)]
        calls = turn.calls
    return parts


def chat_tail(agent: Agent, *, streamed: bool) -> str:
    functions = [
        {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
        for tool in agent.tools
    ]
    rest: dict[str, Any] = {
        "tools": [{"type": "function", "function": function} for function in functions],
        "max_completion_tokens": 32_000,
    }
    if streamed:
        rest |= {"stream": True, "stream_options": {"include_usage": True}}
    return "]," + to_json(rest)[1:]
