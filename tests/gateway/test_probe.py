"""`toolwire doctor --probe`, against hosts on loopback that refuse what their profile says."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.servers.asgi import serve_app
from tests.support.servers.http_responses import CHAT_BODY
from toolwire.cli import main
from toolwire.codec.hosts.profile import HostProfile, rule_for
from toolwire.codec.hosts.registry import profile_named
from toolwire.gateway.config import build_providers, parse_config
from toolwire.gateway.probe import PROBES
from toolwire.upstream.simulator.app import Simulator

SECRET = "canary-of-a-key"
MODEL = "m"
_MEMBERS = ("parallel_tool_calls", "store", "metadata", "prompt_cache_key")
_EXTRA = {"toolwire_probe", *_MEMBERS}


class ProfileHost:
    """A Chat server that answers, or refuses a request which its profile rules out."""

    def __init__(self, profile: HostProfile, status: int = 0) -> None:
        self.bodies: list[Any] = []
        self._profile = profile
        self._status = status

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = json.loads((await receive())["body"])
        self.bodies.append(body)
        status = self._status or (400 if self._refuses(body) else 200)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": CHAT_BODY if status == 200 else b'{"error":"no"}'})

    def _refuses(self, body: Any) -> bool:
        profile, fields = self._profile, self._profile.fields
        known = set(fields.known) if fields.known and fields.unknown == "refused" else {*_EXTRA, *body}
        return (
            any(self._refuses_message(body["messages"], index) for index in range(len(body["messages"])))
            or any(
                name in body and name not in profile.output.limit_fields
                for name in ("max_tokens", "max_completion_tokens")
            )
            or any(name in body and (name in fields.refused or name not in known) for name in _EXTRA)
            or ("reasoning_effort" in body and not accepts_effort(profile))
            or ("stream_options" in body and not profile.output.stream_usage)
            or ('"strict"' in json.dumps(body) and profile.tools.strict == "refused")
            or ("tool_choice" in body and choice_mode(body["tool_choice"]) not in profile.choice.rules[0].modes)
        )

    def _refuses_message(self, messages: list[Any], index: int) -> bool:
        facts, message = self._profile.messages, messages[index]
        previous = messages[index - 1]["role"] if index else ""
        return (
            message["role"] not in facts.roles
            or (isinstance(message["content"], list) and message["role"] in self._profile.content.string_roles)
            or (message["role"] == "system" and index > 0 and not facts.late_system)
            or (message["role"] == "user" and previous == "tool" and not facts.user_after_tool)
        )


def accepts_effort(profile: HostProfile) -> bool:
    rule = rule_for(profile.thinking.efforts, MODEL)
    return rule is not None and "low" in rule.words


def choice_mode(choice: Any) -> str:
    return choice if isinstance(choice, str) else "named"


def config(url: str, more: str = "") -> str:
    return f'[providers.up]\nprotocol = "openai-chat"\nbase_url = "{url}"\napi_key = "{SECRET}"\n{more}\n'


def probe(folder: Path, text: str, *arguments: str) -> Result:
    path = folder / "toolwire.toml"
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["doctor", "--config", str(path), "--timeout", "120", "--probe", *arguments])
    assert SECRET not in result.output
    return result


def facts(profile: HostProfile) -> dict[str, Any]:
    """Return the facts that probes find out, in a form that does not depend on the order of lists."""
    modes, fields = profile.choice.rules[0].modes, profile.fields
    refused = {name for name in _MEMBERS if name in fields.refused}
    refused |= {name for name in _MEMBERS if fields.unknown == "refused" and fields.known and name not in fields.known}
    return {
        "roles": set(profile.messages.roles),
        "late_system": profile.messages.late_system,
        "user_after_tool": profile.messages.user_after_tool,
        "list content": "user" not in profile.content.string_roles,
        "effort": accepts_effort(profile),
        "strict": profile.tools.strict != "refused",
        "choices": {mode for mode in ("required", "named") if mode in modes},
        "limits": set(profile.output.limit_fields),
        "stream_usage": profile.output.stream_usage,
        "refused": refused,
    }


@pytest.mark.parametrize("name", ["mistral", "groq", "deepseek", "cerebras", "zai", "vllm", "openai"])
def test_probing_a_host_yields_the_facts_of_its_profile(name: str, tmp_path: Path) -> None:
    host = ProfileHost(profile_named(name))
    with serve_app(host) as url:
        result = probe(tmp_path, config(url, f'default_model = "{MODEL}"'), "up")
        assert result.exit_code == 0, result.output
        learned = parse_config(config(url, 'host = "up"') + result.stdout, {})
    assert len(host.bodies) == len(PROBES)
    assert f"up with {MODEL}: {len(PROBES)} requests" in result.stderr
    assert facts(build_providers(learned)["up"].profile(MODEL)) == facts(profile_named(name))


@pytest.mark.parametrize("name", ["mistral", "groq", "cerebras", "nvidia"])
def test_probing_a_strict_simulator_yields_the_facts_of_its_profile(name: str, tmp_path: Path) -> None:
    profile = profile_named(name)
    with serve_app(Simulator(profiles=(profile,))) as url:
        result = probe(tmp_path, config(url), "up", "--model", MODEL)
        assert result.exit_code == 0, result.output
        learned = parse_config(config(url, 'host = "up"') + result.stdout, {})
    assert facts(build_providers(learned)["up"].profile(MODEL)) == facts(profile)


def test_probes_ask_for_one_token(tmp_path: Path) -> None:
    host = ProfileHost(profile_named("openai"))
    with serve_app(host) as url:
        probe(tmp_path, config(url), "up", "--model", MODEL)
    assert all(1 in (body.get("max_tokens"), body.get("max_completion_tokens")) for body in host.bodies)


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_failures_end_the_probing(status: int, tmp_path: Path) -> None:
    host = ProfileHost(profile_named("openai"), status)
    with serve_app(host) as url:
        result = probe(tmp_path, config(url), "up", "--model", MODEL)
    assert (result.exit_code, result.stdout, len(host.bodies)) == (1, "", 1)
    assert f"status {status}" in result.stderr


def test_host_that_rejects_everything_is_not_described(tmp_path: Path) -> None:
    host = ProfileHost(profile_named("openai"), 400)
    with serve_app(host) as url:
        result = probe(tmp_path, config(url), "up", "--model", MODEL)
    assert (result.exit_code, result.stdout, len(host.bodies)) == (1, "", 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["other"], "unknown provider 'other'; expected one of up"),
        (["up"], "up has no default_model; add --model MODEL"),
    ],
)
def test_usage_errors_send_nothing(arguments: list[str], message: str, tmp_path: Path) -> None:
    host = ProfileHost(profile_named("openai"))
    with serve_app(host) as url:
        result = probe(tmp_path, config(url), *arguments)
    assert (result.exit_code, host.bodies) == (2, [])
    assert message in result.stderr
