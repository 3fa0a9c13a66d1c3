"""The matrix: requests of the recorded agents through the gateway to the simulator of each host."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from tests.agents.recordings import VARIANTS, read_recording
from tests.host_matrix.essentials import Body
from tests.host_matrix.judgement import find_losses, find_unreported
from tests.support.gateway.in_process import build_silent_app
from tests.support.gateway.setup import GatewaySetup, ObservedApp, ObservedExchange
from tests.support.servers.asgi import http_client, serve_app
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.hosts.registry import host_profiles
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.hosts.host import CHECKED_PROTOCOLS

MODELS = {
    "openai": ("gpt-6-astra", "gpt-4.1"),
    "azure": ("gpt-5.4",),
    "deepseek": ("deepseek-v4-pro", "deepseek-chat"),
    "mistral": ("devstral-medium-latest", "mistral-medium-3.5"),
    "groq": ("openai/gpt-oss-120b", "llama-3.3-70b-versatile", "qwen/qwen3-32b"),
    "moonshot": ("kimi-k3", "kimi-k2.6", "moonshot-v1-128k"),
    "zai": ("glm-5.3", "glm-4.6", "glm-4.6v"),
    "dashscope": ("qwen3.8-max", "qwen3-coder-plus"),
    "xai": ("grok-4.5", "grok-code-fast-1"),
    "vllm": ("qwen3.5-coder",),
    "sglang": ("qwen3.5-coder",),
    "llamacpp": ("qwen3.5-coder",),
    "lmstudio": ("qwen3.5-coder",),
    "ollama": ("gpt-oss:20b", "qwen2.5-coder:7b"),
    "copilot": ("gemini-3-pro",),
    "openrouter": ("deepseek/deepseek-v4",),
    "together": ("zai-org/GLM-4.6",),
    "fireworks": ("accounts/fireworks/models/kimi-k2-instruct",),
    "cerebras": ("gpt-oss-120b",),
    "nvidia": ("nvidia/nemotron-4-340b",),
    "minimax": ("MiniMax-M2",),
    "volcengine": ("doubao-seed-1-6",),
    "gemini": ("gemini-3-pro",),
    "anthropic-chat": ("claude-sonnet-5",),
    "bedrock": ("eu.anthropic.claude-opus-5-5-v1:0",),
    "vertex": ("claude-opus-5-5",),
    "generic": ("some-model",),
}
"""Models of each host, one for every set of rules that its profile has."""

PROTOCOL_MODELS = {("vertex", "gemini"): ("gemini-3-pro",)}
"""Models of hosts that serve others in this protocol."""

JUDGED_PROTOCOLS = tuple(name for name in CHECKED_PROTOCOLS if name != "gemini")
"""Protocols of the hosts in the matrix. Gemini's is the same at both of its hosts."""

WEB_SEARCHES = ("claude/web_search", "claude/forced_web_search")
"""Requests that offer only a search that the provider runs. For hosts without one, the gateway refuses them."""

RECORDINGS = tuple(VARIANTS.values())


def has_search(target: "Target") -> bool:
    """Return whether a target runs web searches; in Chat, none of the models here does."""
    return target.profile.protocol != "openai-chat" and target.profile.tools.hosted


def models_of(profile: HostProfile) -> tuple[str, ...]:
    """Return the models to try at a host in one of its protocols."""
    return PROTOCOL_MODELS.get((profile.name, profile.protocol)) or MODELS[profile.name]


class Target(Struct, frozen=True):
    """A model at a host, in one of the host's protocols."""

    profile: HostProfile
    model: str

    @property
    def name(self) -> str:
        return f"{self.profile.name}-{self.profile.protocol}-{models_of(self.profile).index(self.model)}"


TARGETS = tuple(
    Target(profile, model)
    for host in MODELS
    for protocol, profile in host_profiles(host).items()
    if protocol in JUDGED_PROTOCOLS
    for model in models_of(profile)
)


def recordings_for(target: Target) -> list[str]:
    """Return the recordings for a target.

    Requests in the protocol of an unknown host, or of the vendor with a model that the agent does not know, are the
    client's responsibility: they pass unchanged.
    """
    is_foreign_model = target.profile.pass_through and not target.name.endswith("-0")
    unchanged = target.profile.protocol if target.profile.name == "generic" or is_foreign_model else None
    return [name for name in RECORDINGS if read_recording(name)[0] != unchanged]


DECLINED = "gateway: 400 web_search is the only tool, but the target does not have it"
_NO_SEARCH = re.compile(
    r"^gateway: 400 .*web_search (must be called|is the only tool), but the target does not have it"
)


class Cell(Struct, frozen=True):
    """One request to one host. `refusal` is the host's or the gateway's error; empty if the host accepted it."""

    target: Target
    recording: str
    turn: int
    refusal: str
    losses: tuple[str, ...]
    unreported: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        return (not self.refusal or self.is_declined) and not self.losses

    @property
    def is_declined(self) -> bool:
        """Whether the gateway refused a search that the host does not have, and said so."""
        return self.recording in WEB_SEARCHES and _NO_SEARCH.search(self.refusal) is not None


class HostServers:
    """An ASGI app with the simulators of all targets, each below its name."""

    def __init__(self) -> None:
        self._apps = {
            target.name: Simulator((target.profile.protocol,), profiles=[target.profile]) for target in TARGETS
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            _, name, path = scope["path"].split("/", 2)
            await self._apps[name]({**scope, "path": f"/{path}"}, receive, send)


@contextmanager
def serve_matrix(dialect: str | None = None) -> Iterator[GatewaySetup]:
    """Serve the gateway with a provider per target, and the simulators of all hosts.

    `dialect` names a host profile that the gateway uses for all targets instead of their profiles.
    """
    upstream = ObservedApp(HostServers())
    with serve_app(upstream) as url:
        config = "\n".join(
            f'[providers.{target.name}]\nprotocol = "{target.profile.protocol}"\nbase_url = "{url}/{target.name}"\n'
            f'api_key = "k"\nhost = "{dialect or target.profile.name}"\nmodels = ["{target.model}"]\n'
            + ('region = "global"\nproject = "p"' if target.profile.address.path and dialect is None else "")
            for target in TARGETS
        )
        gateway = ObservedApp(build_silent_app(config))
        with serve_app(gateway) as base_url:
            yield GatewaySetup(base_url, gateway, upstream)


def run_cells(setup: GatewaySetup, target: Target, recording: str) -> Iterator[Cell]:
    """Send the requests of a recording to a target, and judge what the host received."""
    protocol, path, bodies = read_recording(recording)
    model = f"{target.name}/{target.model}"
    if protocol == "gemini":
        path = f"/v1beta/models/{model}:streamGenerateContent?alt=sse"
    for turn, body in enumerate(bodies, 1):
        setup.reset()
        sent = body if protocol == "gemini" else body | {"model": model}
        headers = {"anthropic-version": "2023-06-01", "x-api-key": "k"}
        response = http_client.post(setup.base_url + path, json=sent, headers=headers)
        refusal = _refusal(setup, response.status_code, response.text)
        losses, unreported = ((), ()) if refusal else _judge(setup, target, protocol, sent)
        yield Cell(target, recording, turn, refusal, losses, unreported)


def _refusal(setup: GatewaySetup, status: int, text: str) -> str:
    """Return the error of the host, or of the gateway; empty if the first request was accepted."""
    refusals = [f"{seen.status} {seen.response_body.decode()[:300]}" for seen in _requests(setup) if seen.status != 200]
    return "; ".join(refusals) or ("" if status == 200 else f"gateway: {status} {text[:300]}")


def _requests(setup: GatewaySetup) -> list[ObservedExchange]:
    """Return the requests to the host, without those for its list of models."""
    return [exchange for exchange in setup.upstream.exchanges if exchange.request_body]


def _judge(setup: GatewaySetup, target: Target, protocol: str, sent: Body) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the content that the host did not receive, and the changes that were not reported."""
    (exchange,) = _requests(setup)
    received = json.loads(exchange.request_body)
    losses = tuple(find_losses(protocol, sent, target.profile, received))
    if protocol == target.profile.protocol:
        return losses, ()
    return losses, tuple(find_unreported(sent, received, setup.losses()))
