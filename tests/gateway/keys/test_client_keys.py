"""Keys of `[keys.NAME]`: their secrets, the models that they may use, and what they may see."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any

import pytest

from tests.support.gateway.in_process import PROTOCOL_NAMES, RunningGateway, run_async, run_gateway
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import reply_with, serve_upstream
from toolwire.gateway.config import ConfigError, parse_config
from toolwire.gateway.keys.client_key import create_secret, hash_secret

SECRETS = {"alice": create_secret(), "root": create_secret(), "late": create_secret()}
YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)
RULES = {
    "alice": 'models = ["fast", "one/gpt-*"]',
    "root": "admin = true",
    "late": f"expires = {YESTERDAY.isoformat()}",
}
KEYS = "\n".join(f'[keys.{name}]\nhash = "{hash_secret(secret)}"\n{RULES[name]}' for name, secret in SECRETS.items())
ROUTES = """
[[routes]]
match = "fast"
backends = [{provider = "two", model = "secret-model"}]
[[routes]]
match = "mixed"
backends = [{provider = "two", model = "dear"}, {provider = "one", model = "gpt-5"}]
"""


@asynccontextmanager
async def run_with_keys(keys: str = KEYS) -> AsyncIterator[RunningGateway]:
    """Run a gateway with two providers."""
    answer = reply_with(*repeat(CHAT_RESPONSE, 8))
    async with serve_upstream(answer) as one, serve_upstream(answer) as two:
        providers = "\n".join(
            f'[providers.{name}]\nprotocol = "openai-chat"\nbase_url = "http://{origin.authority}"\nmodels = ["gpt-5"]'
            for name, origin in (("one", one), ("two", two))
        )
        async with run_gateway(f"{keys}\n{providers}\n{ROUTES}") as gateway:
            yield gateway


async def ask(gateway: RunningGateway, name: str, model: str, path: str = "/v1/chat/completions") -> tuple[int, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "input": "Hi"}
    answer = await gateway.post(path, json.dumps(body).encode(), authorization=f"Bearer {SECRETS[name]}")
    return answer.status, answer.headers.get("toolwire-model") or (await answer.read(100_000)).decode()


@pytest.mark.parametrize(
    ("model", "status", "answered"),
    [
        ("one/gpt-5", 200, ""),
        ("fast", 200, ""),
        ("mixed", 200, ""),
        ("two/gpt-5", 403, "may not use the model 'two/gpt-5'; it may use fast, one/gpt-*"),
        ("two/secret-model", 403, "may not use the model"),
    ],
)
def test_key_reaches_only_its_models(model: str, status: int, answered: str) -> None:
    async def work() -> None:
        async with run_with_keys() as gateway:
            found, text = await ask(gateway, "alice", model)
            assert found == status
            assert answered in text
            assert (await ask(gateway, "root", model))[0] == 200
            assert (await ask(gateway, "alice", model, "/v1/embeddings"))[0] == status

    run_async(work())


def test_backends_that_a_key_may_not_use_are_left_out_of_a_route() -> None:
    async def work() -> None:
        async with run_with_keys() as gateway:
            body = json.dumps({"protocol": "openai-chat", "body": {"model": "mixed", "messages": []}}).encode()
            providers = {}
            for name in ("alice", "root"):
                answer = await gateway.post("/toolwire/translate", body, x_api_key=SECRETS[name])
                providers[name] = json.loads(await answer.read(100_000))["provider"]
            assert providers == {"alice": "one", "root": "two"}

    run_async(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_wrong_and_expired_keys_are_refused_in_the_protocol_of_the_client(protocol: str) -> None:
    async def work() -> None:
        async with run_with_keys() as gateway:
            for secret, problem in ((SECRETS["late"], f"expired on {YESTERDAY}"), ("sk-tw-wrong", "invalid API key")):
                answer = await gateway.send_question(protocol, x_api_key=secret)
                assert (answer.status, problem in (await answer.read(10_000)).decode()) == (401, True)

    run_async(work())


def test_key_sees_only_its_models_and_only_admins_see_metrics() -> None:
    async def work() -> None:
        async with run_with_keys() as gateway:
            listed = {}
            for name in ("alice", "root"):
                _, data = await gateway.get("/v1/models", x_api_key=SECRETS[name])
                listed[name] = {model["id"] for model in json.loads(data)["data"]}
            assert listed["alice"] == {"fast", "one/gpt-5", "gpt-5"}
            assert listed["root"] == {"fast", "mixed", "gpt-5", "one/gpt-5", "two/gpt-5"}
            status, data = await gateway.get("/metrics", x_api_key=SECRETS["alice"])
            assert (status, b"the key 'alice' is no admin key (keys.alice.admin)" in data) == (403, True)
            assert (await gateway.get("/metrics", x_api_key=SECRETS["root"]))[0] == 200

    run_async(work())


def test_key_sees_only_the_providers_of_its_models() -> None:
    async def work() -> None:
        async with run_with_keys() as gateway:
            seen = {}
            for name in ("alice", "root"):
                _, data = await gateway.get("/toolwire/providers/mixed", x_api_key=SECRETS[name])
                seen[name] = [provider["name"] for provider in json.loads(data)["providers"]]
            assert seen == {"alice": ["one"], "root": ["two", "one"]}
            assert (await gateway.get("/toolwire/providers/two/gpt-5", x_api_key=SECRETS["alice"]))[0] == 403
            assert (await gateway.get("/toolwire/providers/three/m", x_api_key=SECRETS["root"]))[0] == 404

    run_async(work())


def test_losses_are_shown_only_to_the_key_that_made_the_request() -> None:
    async def work() -> None:
        async with run_with_keys() as gateway:
            answer = await gateway.send_question("openai-chat", x_api_key=SECRETS["root"])
            path = f"/toolwire/exchanges/{answer.headers['toolwire-exchange']}/losses"
            assert (await gateway.get(path, x_api_key=SECRETS["root"]))[0] == 200
            assert (await gateway.get(path, x_api_key=SECRETS["alice"]))[0] == 404

    run_async(work())


def test_new_secret_of_a_key_keeps_its_data() -> None:
    sections = parse_config(KEYS, {}).keys
    renewed = parse_config(KEYS.replace(hash_secret(SECRETS["alice"]), hash_secret("another")), {}).keys
    assert sections["alice"].hash != renewed["alice"].hash
    assert _tenant(sections, "alice") == _tenant(renewed, "alice") != _tenant(sections, "root")


def _tenant(sections: Any, name: str) -> str:
    from toolwire.gateway.keys.client_key import ClientKey

    return ClientKey(name, sections[name]).tenant


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[keys.a]\nhash = "md5:1"', "expected sha256: and 64 hexadecimal digits, as `toolwire keys create`"),
        (f'[keys.a]\nhash = "{hash_secret("s")}"\n[keys.b]\nhash = "{hash_secret("s")}"', "keys.a has the same secret"),
        (f'[keys.a]\nhash = "{hash_secret("s")}"\nexpires = "soon"', "expected a date (YYYY-MM-DD), got a string"),
        (f'[keys.a]\nhash = "{hash_secret("s")}"\nmodel = "x"', 'unknown key "model" in [keys.a] (did you mean'),
        ("[keys.a]\nadmin = true", 'missing key "hash" in [keys.a]'),
    ],
)
def test_invalid_keys_are_configuration_errors(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, {})
    assert problem in str(caught.value)
