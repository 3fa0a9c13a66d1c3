"""A gateway with a console, in front of strict simulated hosts, and the requests of some clients."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from msgspec import Struct
from playwright.sync_api import Browser, Page

import toolwire
from tests.support.deadlines import DEADLINE
from tests.support.servers.asgi import serve_app
from toolwire.canonical.response import Usage
from toolwire.codec.hosts.registry import profile_named
from toolwire.gateway.config import parse_config
from toolwire.gateway.server.app import App
from toolwire.gateway.server.gateway import build_gateway
from toolwire.runtime.calls.approval import ApprovalAnswer
from toolwire.testing import ScriptedModel, call, respond
from toolwire.upstream.simulator.app import Simulator

UPSTREAM_KEY = "sk-upstream-key-0123456789abcdef"
WEATHER = {
    "name": "get_weather",
    "description": "Get the current weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "City and country, such as Oslo, Norway"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
    },
}
CLAUDE_AGENT, OPENAI_AGENT = "claude-cli/2.1.0 (external, cli)", "OpenAI/Python 2.8.0"
SYSTEM = "You are a careful assistant of a travel agency.\nAnswer in one paragraph. Never guess a temperature."


class ConsoleGateway(Struct):
    """A running gateway."""

    url: str
    app: App
    client: httpx.Client

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.client.post(
            self.url + path, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )

    def open_page(self, browser: Browser, path: str = "/", **options: Any) -> Page:
        context = browser.new_context(**({"viewport": {"width": 1440, "height": 900}} | options))
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.goto(self.url + path)
        return page

    def capture_bodies(self, seconds: float = 3600) -> None:
        assert self.app.console is not None
        self.app.console.buffer.capture_for(seconds)


CONFIG = """
{extra}
[providers.groq]
protocol = "openai-chat"
base_url = "{groq}"
host = "groq"
api_key = "{key}"
default_model = "llama-3.3-70b-versatile"

[providers.anthropic]
protocol = "anthropic"
base_url = "{anthropic}"
api_key = "{key}"
default_model = "claude-sonnet-4-5"

[providers.gemini]
protocol = "gemini"
base_url = "{gemini}"
api_key = "{key}"
default_model = "gemini-2.5-pro"

[state]
path = ":memory:"
"""


def run_console_gateway(stack: ExitStack, folder: Path, extra: str = "", pace: float = 0) -> ConsoleGateway:
    """Serve a gateway and its simulated hosts until the stack is closed."""
    hosts = {
        "groq": Simulator(["openai-chat"], profiles=[profile_named("groq")], pace=pace),
        "anthropic": Simulator(["anthropic"], pace=pace),
        "gemini": Simulator(["gemini"], pace=pace),
    }
    urls = {name: stack.enter_context(serve_app(app)) for name, app in hosts.items()}
    environment = {"HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    config = parse_config(CONFIG.format(extra=extra, key=UPSTREAM_KEY, **urls), environment)
    gateway = build_gateway(config, environment=environment)
    url = stack.enter_context(serve_app(gateway.app))
    stack.callback(gateway.app.end_feeds)
    client = stack.enter_context(httpx.Client(timeout=DEADLINE))
    return ConsoleGateway(url, gateway.app, client)


def claude_request(model: str = "groq/llama-3.3-70b-versatile", **fields: Any) -> dict[str, Any]:
    """Return a request as a client of Anthropic's protocol sends it, with fields that others lack."""
    return {
        "model": model,
        "max_tokens": 1024,
        "top_k": 40,
        "temperature": 0.7,
        "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
        "tools": [WEATHER],
        "metadata": {"user_id": "user-4711"},
        "messages": [{"role": "user", "content": "Should I take an umbrella to Oslo today?"}],
    } | fields


def chat_request(model: str, text: str = "Hello", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]} | fields


def send_traffic(gateway: ConsoleGateway) -> None:
    """Send what a console of a busy day shows: several clients, streams, calls, errors and losses."""
    gateway.post(
        "/v1/chat/completions",
        chat_request("anthropic/claude-sonnet-4-5", seed=7, logit_bias={"50256": -100}),
        user_agent=OPENAI_AGENT,
    )
    gateway.post("/v1/messages", claude_request("anthropic/claude-sonnet-4-5"), user_agent=CLAUDE_AGENT)
    gateway.post(
        "/v1/responses",
        {"model": "gemini/gemini-2.5-pro", "input": "Summarize the plot of Hamlet.", "truncation": "auto", "user": "u"},
        user_agent="codex_cli_rs/0.60.0",
    )
    gateway.post("/v1/messages", claude_request(stream=True), user_agent=CLAUDE_AGENT)
    gateway.post("/v1/chat/completions", chat_request("groq/llama-3.3-70b-versatile", n=3), user_agent=OPENAI_AGENT)
    gateway.post("/v1/chat/completions", chat_request("nowhere/gpt-9"), user_agent="curl/8.5.0")
    gateway.post(
        "/v1beta/models/anthropic/claude-opus-4-1:streamGenerateContent?alt=sse",
        {
            "contents": [{"role": "user", "parts": [{"text": "Write a long poem about the sea. " * 200}]}],
            "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        },
        user_agent="GeminiCLI/0.15.0",
    )
    conversation = claude_request(
        "gemini/gemini-2.5-pro",
        stream=True,
        thinking={"type": "enabled", "budget_tokens": 2048},
        max_tokens=4096,
        temperature=1,
        messages=[
            {"role": "user", "content": "Should I take an umbrella to Oslo today?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "toolu_01", "name": "get_weather", "input": {"city": "Oslo, Norway"}}
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_01",
                        "content": json.dumps({"temperature": 7, "rain": True}),
                    }
                ],
            },
        ],
    )
    gateway.post("/v1/messages", conversation, user_agent=CLAUDE_AGENT)


RUNS_FILE = "toolwire/runs.db"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGP8z8DAwMDAxMDAwMDAAAANHQEDasKb6QAAAABJRU5ErkJggg=="


def open_exchange(gateway: ConsoleGateway, browser: Browser, request: dict[str, Any]) -> Page:
    """Send a request of Anthropic's protocol, and open its exchange in the page."""
    response = gateway.post("/v1/messages", request)
    page = gateway.open_page(browser, f"/#/exchanges/{response.headers['toolwire-exchange']}")
    page.wait_for_selector(".detail-body > *")
    return page


class Postponing:
    """An approver that leaves every decision for later, so that the run waits."""

    name = "test"

    async def approve(self, request: toolwire.ApprovalRequest) -> ApprovalAnswer:
        return "later"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return None


def record_runs(folder: Path) -> list[str]:
    """Record a finished run with a picture, and one that waits for an approval; return their ids."""

    @toolwire.tool
    def get_weather(city: str) -> str:
        """Get the current weather in a city."""
        return f"7 degrees and rain in {city}"

    @toolwire.tool
    def take_screenshot() -> toolwire.Media:
        """Take a screenshot of the page."""
        return toolwire.Media(kind="image", source=toolwire.Inline(data=PIXEL), media_type="image/png")

    @toolwire.tool
    def send_mail(to: str, text: str) -> str:
        """Send an e-mail."""
        return "sent"

    tools: list[Any] = [get_weather, take_screenshot, send_mail]
    policy = toolwire.Policy(allow=["get_weather", "take_screenshot"], ask=["send_mail"])
    path = folder / RUNS_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    usage = Usage(input_tokens=812, output_tokens=64)
    finished = ScriptedModel(
        respond("I look it up.", call("get_weather", city="Oslo"), usage=usage),
        respond("The page first.", call("take_screenshot"), usage=usage),
        "Take an umbrella: it rains in Oslo, at 7 degrees.",
    )
    waiting = ScriptedModel(call("send_mail", to="ann@example.com", text="Take an umbrella."))
    prompts = {"Should I take an umbrella to Oslo today?": finished, "Tell Ann about the weather in Oslo.": waiting}
    return [
        toolwire.Agent(model, tools=tools, policy=policy, approver=Postponing(), journal=path).run(prompt).id
        for prompt, model in prompts.items()
    ]


async def other_site(scope: Any, receive: Any, send: Any) -> None:
    """Serve an empty page of another site."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": b"<!doctype html><title>other</title>"})
