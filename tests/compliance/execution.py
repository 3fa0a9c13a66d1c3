"""The llm-comply suites on every upstream through the gateway, with the result of each test."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from tests.support.gateway.setup import GatewaySetup, serve_gateway
from tests.support.sdk.clients import SDK_CLIENTS
from toolwire.upstream.simulator.app import Simulator

VERSION = (Path(__file__).parent / "requirements.txt").read_text(encoding="utf-8").strip().partition("==")[2]


class Format(Struct, frozen=True):
    """The name of a protocol in llm-comply, and its base URL.

    llm-comply skips tests of models with unknown names.
    """

    name: str
    protocol: str
    base: str
    model: str
    options: tuple[str, ...] = ()


FORMATS = [
    Format("open-responses", "openai-responses", "/v1", "gpt-5"),
    Format("openai-chat", "openai-chat", "/v1", "gpt-5"),
    Format(
        "anthropic",
        "anthropic",
        "/v1",
        "claude-opus",
        ("--auth-header", "x-api-key", "--no-bearer", "--header", "anthropic-version:2023-06-01"),
    ),
    Format("google-genai", "gemini", "", "gemini-3", ("--auth-header", "x-goog-api-key", "--no-bearer")),
    Format(
        "google-interactions", "gemini-interactions", "", "gemini-3", ("--auth-header", "x-goog-api-key", "--no-bearer")
    ),
]
# One model per upstream that supports the tests: a thinking budget, and calls while thinking.
MODELS = {name: model for name, (_, model) in SDK_CLIENTS.items()} | {
    "anthropic": "claude-haiku-4-5",
    "openai-chat": "gpt-5.4",
}


class Outcome(Struct, frozen=True):
    format: str
    upstream: str
    test: str
    status: str
    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def run_suites(command: Path) -> Iterator[Outcome]:
    routes = "\n".join(
        f'[[routes]]\nmatch = "*-on-{name}"\nprovider = "{name}"\nmodel = "{model}"' for name, model in MODELS.items()
    )
    with serve_gateway(Simulator(require_key=True), routes) as setup:
        for suite in FORMATS:
            for upstream in MODELS:
                yield from _outcomes(command, setup, suite, upstream)


def _outcomes(command: Path, setup: GatewaySetup, suite: Format, upstream: str) -> Iterator[Outcome]:
    run = subprocess.run(
        [
            *(str(command), "--json", "--format", suite.name, "--api-key", "a-key", "--timeout", "20"),
            *("--base-url", setup.base_url + suite.base, "--model", f"{suite.model}-on-{upstream}", *suite.options),
        ],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert run.stdout, run.stderr
    for result in json.loads(run.stdout)["results"]:
        yield Outcome(
            suite.name,
            upstream,
            result["id"],
            result["status"],
            tuple(result.get("errors", ())),
            tuple(result.get("warnings", ())),
        )
