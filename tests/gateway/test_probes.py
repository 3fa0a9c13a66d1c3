"""`toolwire doctor --probe`, against simulated hosts that refuse what their profile says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.assertions import non_empty
from tests.support.servers.asgi import serve_app
from toolwire.cli import main
from toolwire.codec.encoding.hosted_tools import accepts_native
from toolwire.codec.hosts.profile import HostProfile, rule_for
from toolwire.codec.hosts.registry import profile_named
from toolwire.gateway.config import build_providers, parse_config
from toolwire.gateway.probes.runner import PROBE_SETS
from toolwire.upstream.simulator.app import Simulator

SECRET = "canary-of-a-key"
MODEL = "m"
CHAT = "openai-chat"
RESPONSES = "openai-responses"
MESSAGES = "anthropic"


class FailingHost:
    """A server that answers every request with one status."""

    def __init__(self, status: int = 400) -> None:
        self.bodies: list[Any] = []
        self._status = status

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append(json.loads((await receive())["body"]))
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"error":"no"}'})


class RecordingHost:
    """A simulated host that keeps the bodies of its requests."""

    def __init__(self, profile: HostProfile) -> None:
        self.bodies: list[Any] = []
        self._app = Simulator(protocols=(profile.protocol,), profiles=(profile,))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def record() -> Any:
            message = await receive()
            if message.get("body"):
                self.bodies.append(json.loads(message["body"]))
            return message

        await self._app(scope, record, send)


def config(url: str, more: str = "", protocol: str = CHAT) -> str:
    return f'[providers.up]\nprotocol = "{protocol}"\nbase_url = "{url}"\napi_key = "{SECRET}"\n{more}\n'


def probe(folder: Path, text: str, *arguments: str) -> Result:
    path = folder / "toolwire.toml"
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["doctor", "--config", str(path), "--timeout", "120", "--probe", *arguments])
    assert SECRET not in result.output
    return result


def refused_members(profile: HostProfile, model: str) -> set[str]:
    """Return the members of the body that have a probe of their own, and that the host refuses."""
    fields, probes = profile.fields, PROBE_SETS[profile.protocol]
    members = {name for name, change in {**probes.forms, **probes.changes}.items() if name in change}
    members -= {"stream_options", *profile.output.limit_fields, "max_tokens", "max_completion_tokens"}
    unknown = members - set(fields.known) if fields.unknown == "refused" and fields.known else set()
    return unknown | members & set(fields.refused)


def probed_words(profile: HostProfile, name: str) -> list[str]:
    """Return the efforts or tool choices that probes try."""
    changes = PROBE_SETS[profile.protocol].changes
    return [change.partition(" ")[2] for change in changes if change.partition(" ")[0] == name]


def efforts(profile: HostProfile, model: str) -> set[str]:
    rule = rule_for(profile.thinking.efforts, model)
    return set() if rule is None else set(rule.words) & set(probed_words(profile, "effort"))


def choices(profile: HostProfile, model: str) -> set[str]:
    rule = rule_for(profile.choice.rules, model)
    assert rule is not None
    return set(rule.modes) & set(probed_words(profile, "choice"))


# How the facts that probes find out are compared: only as far as probes can see them.
VIEWS: dict[str, Callable[[HostProfile, str], Any]] = {
    "messages.roles": lambda profile, _: set(profile.messages.roles),
    "messages.late_system": lambda profile, _: profile.messages.late_system,
    "messages.user_after_tool": lambda profile, _: profile.messages.user_after_tool,
    "content.string_roles": lambda profile, _: "user" in profile.content.string_roles,
    "content.media": lambda profile, _: "image" in profile.content.media,
    "tools.strict": lambda profile, _: profile.tools.strict != "refused",
    "tools.freeform": lambda profile, _: profile.tools.freeform,
    "tools.typed": lambda profile, _: profile.tools.typed,
    "tools.hosted": lambda profile, _: profile.tools.hosted,
    "tools.client_run": lambda profile, _: accepts_native("client", profile),
    "tools.deferred": lambda profile, _: profile.tools.deferred,
    "choice.rules": choices,
    "thinking.efforts": efforts,
    "output.limit_field": lambda profile, _: profile.output.limit_field,
    "output.limit_fields": lambda profile, _: set(profile.output.limit_fields),
    "output.stream_usage": lambda profile, _: profile.output.stream_usage,
    "output.format_required": lambda profile, _: profile.output.format_required,
    "fields.refused": refused_members,
    "fields.unknown": lambda profile, _: profile.fields.unknown == "refused",
}
# Hosts ignore cache marks that they don't know. Chat hosts accept both limits, and have one that they prefer.
INVISIBLE = {"content.cache_marks", "output.limit_field"}


@pytest.mark.parametrize(
    ("name", "protocol", "model", "settings"),
    [
        ("mistral", CHAT, MODEL, ""),
        ("mistral", CHAT, "magistral-small-latest", ""),
        ("groq", CHAT, MODEL, ""),
        ("cerebras", CHAT, MODEL, ""),
        ("nvidia", CHAT, MODEL, ""),
        ("openai", CHAT, MODEL, ""),
        ("deepseek", MESSAGES, MODEL, ""),
        ("moonshot", MESSAGES, "kimi-k3", ""),
        ("ollama", MESSAGES, MODEL, ""),
        ("bedrock", MESSAGES, "claude-opus-5", 'host = "bedrock"\nregion = "eu-west-1"'),
        ("groq", RESPONSES, MODEL, ""),
        ("lmstudio", RESPONSES, MODEL, ""),
        ("llamacpp", RESPONSES, MODEL, ""),
        ("xai", RESPONSES, "grok-4.6", ""),
        ("openai", RESPONSES, MODEL, ""),
    ],
)
def test_probing_a_host_yields_the_facts_of_its_profile(
    name: str, protocol: str, model: str, settings: str, tmp_path: Path
) -> None:
    profile, probes = profile_named(name, protocol), PROBE_SETS[protocol]
    host = RecordingHost(profile)
    with serve_app(host) as url:
        result = probe(tmp_path, config(url, f'default_model = "{model}"\n{settings}', protocol), "up")
        assert result.exit_code == 0, result.output
        learned = parse_config(config(url, 'host = "up"', protocol) + result.stdout, {})
    count = len(probes.forms) + len(probes.changes)
    assert len(host.bodies) == count
    assert f"up with {model}: {count} requests" in result.stderr
    found = build_providers(learned)["up"].profile(model)
    groups = {name: facts for name, facts in learned.hosts["up"].items() if isinstance(facts, dict)}
    for fact in non_empty([f"{name}.{fact}" for name, facts in groups.items() for fact in facts]):
        if fact not in INVISIBLE:
            assert VIEWS[fact](found, model) == VIEWS[fact](profile, model), fact


@pytest.mark.parametrize("protocol", PROBE_SETS)
def test_probes_ask_for_short_answers(protocol: str, tmp_path: Path) -> None:
    host = RecordingHost(profile_named("openai", protocol))
    with serve_app(host) as url:
        probe(tmp_path, config(url, protocol=protocol), "up", "--model", MODEL)
    limits = [body.keys() & {"max_tokens", "max_completion_tokens", "max_output_tokens"} for body in host.bodies]
    assert all(body[limit] <= 16 for body, (limit,) in non_empty(list(zip(host.bodies, limits, strict=True))))


def test_probes_of_responses_are_not_stored(tmp_path: Path) -> None:
    host = RecordingHost(profile_named("openai", RESPONSES))
    with serve_app(host) as url:
        probe(tmp_path, config(url, protocol=RESPONSES), "up", "--model", MODEL)
    assert [body["input"] for body in host.bodies if body.get("store") is not False] == [host.bodies[0]["input"]]


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_failures_end_the_probing(status: int, tmp_path: Path) -> None:
    host = FailingHost(status)
    with serve_app(host) as url:
        result = probe(tmp_path, config(url), "up", "--model", MODEL)
    assert (result.exit_code, result.stdout, len(host.bodies)) == (1, "", 1)
    assert f"status {status}" in result.stderr


@pytest.mark.parametrize("protocol", PROBE_SETS)
def test_host_that_rejects_everything_is_not_described(protocol: str, tmp_path: Path) -> None:
    host = FailingHost(400)
    with serve_app(host) as url:
        result = probe(tmp_path, config(url, protocol=protocol), "up", "--model", MODEL)
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(host.bodies) == len(PROBE_SETS[protocol].forms)
    assert f"up rejects the simplest request for {MODEL}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "protocol", "message"),
    [
        (["other"], CHAT, "unknown provider 'other'; expected one of up"),
        (["up"], CHAT, "up has no default_model; add --model MODEL"),
        (["up"], "gemini", "only openai-chat, anthropic, openai-responses can be probed"),
    ],
)
def test_usage_errors_send_nothing(arguments: list[str], protocol: str, message: str, tmp_path: Path) -> None:
    host = FailingHost()
    with serve_app(host) as url:
        result = probe(tmp_path, config(url, protocol=protocol), *arguments)
    assert (result.exit_code, host.bodies) == (2, [])
    assert message in " ".join(result.stderr.split())
