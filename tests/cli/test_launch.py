"""`toolwire launch`, with a stub for the agent that records its environment."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from msgspec import Struct

from tests.support.configuration import named_config
from tests.support.deadlines import DEADLINE, wait_until
from tests.support.gateway.in_process import build_silent_app
from tests.support.runtime.fork_server import ForkedProcess, start_forked
from tests.support.servers.asgi import http_client, serve_app
from toolwire.cli import main
from toolwire.cli.agent_programs import AGENTS
from toolwire.gateway.keys.client_key import hash_secret
from toolwire.gateway.providers.discovery import simulated_providers
from toolwire.gateway.providers.known_providers import KEY_VARIABLES
from toolwire.upstream.simulator.app import Simulator

KEY = "key-of-the-gateway"
STATE_FILES = {"agents", "seal.key", "state.db", "usage.db"}
PROVIDERS = "[server]\nport = 9\n" + "".join(
    f'[providers.{name}]\nprotocol = "{protocol}"\nbase_url = "URL"\n'
    for name, protocol in (("openai", "openai-responses"), ("anthropic", "anthropic"), ("gemini", "gemini"))
)
FAKE = f"""#!{sys.executable}
import json, os, signal, sys, time, urllib.request
from pathlib import Path

agents = [Path(value) for value in os.environ.values() if "/toolwire/agents/" in value and value.startswith("/")]
folder = min(agents, key=lambda path: len(path.parts), default=None)
found = [] if folder is None else [one for one in folder.rglob("*") if one.is_file()]
files = {{str(one.relative_to(folder)): one.read_text() for one in found}}
root = os.environ.get("ANTHROPIC_BASE_URL")
health = root and urllib.request.urlopen(root + "/healthz").read().decode()
told = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "files": files, "health": health}}
told["process"] = os.getpid()
children = Path(f"/proc/{{os.getppid()}}/task/{{os.getppid()}}/children").read_text().split()
told["sessions"] = [os.getsid(int(child)) for child in children]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
Path("told.json.new").write_text(json.dumps(told))
Path("told.json.new").rename("told.json")
time.sleep(float(os.environ.get("FAKE_WAITS", "0")))
sys.exit(int(os.environ.get("FAKE_CODE", "0")))
"""


class AgentRecord(Struct):
    """The environment, arguments and files that the agent was started with."""

    arguments: list[str]
    environment: dict[str, str]
    files: dict[str, str]
    health: str | None
    process: int
    sessions: list[int]
    """The sessions of the processes that `launch` started, the agent among them."""


class UserMachine(Struct):
    """A user's machine with all agents installed."""

    folder: Path

    @property
    def record(self) -> AgentRecord:
        return AgentRecord(**json.loads((self.folder / "work" / "told.json").read_text()))

    def start(self, *arguments: str, **environment: str) -> ForkedProcess:
        without = {*KEY_VARIABLES.values(), "PATH", "HOME"}
        inherited = {name: value for name, value in os.environ.items() if name not in without}
        home = {"HOME": str(self.folder / "home"), "XDG_STATE_HOME": str(self.folder / "state")}
        return start_forked(
            "launch",
            *arguments,
            folder=self.folder / "work",
            environment={
                **inherited,
                **home,
                **named_config(self.folder / "work"),
                "PATH": str(self.folder / "bin"),
                "TMPDIR": str(self.folder / "tmp"),
                **environment,
            },
            stderr=subprocess.STDOUT,
        )

    def launch(self, *arguments: str, **environment: str) -> tuple[int, str]:
        with self.start(*arguments, **environment) as process:
            stderr, _ = process.communicate()
            return process.returncode, stderr


@pytest.fixture
def desk(tmp_path: Path) -> UserMachine:
    for name in ("bin", "home", "work", "tmp"):
        (tmp_path / name).mkdir()
    for agent in AGENTS.values():
        program = tmp_path / "bin" / agent.executable
        program.write_text(FAKE)
        program.chmod(0o755)
    # Not the default port, where another gateway may be running.
    (tmp_path / "work" / "toolwire.toml").write_text("[server]\nport = 9\n")
    return UserMachine(tmp_path)


@pytest.fixture(scope="module")
def root(providers_url: str) -> Iterator[str]:
    """The URL of a gateway that is already running and requires a key."""
    config = f'[server]\nkeys = ["{KEY}"]\n[providers.up]\nprotocol = "ollama"\nbase_url = "{providers_url}"'
    config += '\n[models."up/model"]\ncontext = 32768\n'
    with serve_app(build_silent_app(config)) as url:
        yield url


@pytest.fixture(scope="module")
def providers_url() -> Iterator[str]:
    """The URL of a simulator of all providers."""
    with serve_app(Simulator()) as url:
        yield url


def configured(desk: UserMachine, root: str) -> None:
    port = root.rpartition(":")[2]
    (desk.folder / "work" / "toolwire.toml").write_text(f'[server]\nport = {port}\nkeys = ["{KEY}"]\n')


def claude_target(record: AgentRecord) -> tuple[str, str, str]:
    assert "ANTHROPIC_API_KEY" not in record.environment
    assert json.loads(record.files[".claude.json"])["hasCompletedOnboarding"] is True
    assert record.environment["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "up/small"
    assert record.environment["ANTHROPIC_DEFAULT_SONNET_MODEL"] == "up/model"
    assert record.environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "32768"
    assert record.environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "8192"
    option, model, *_ = record.arguments
    assert option == "--model"
    return record.environment["ANTHROPIC_BASE_URL"], record.environment["ANTHROPIC_AUTH_TOKEN"], model


def codex_target(record: AgentRecord) -> tuple[str, str, str]:
    config = tomllib.loads(record.files["config.toml"])
    provider = config["model_providers"][config["model_provider"]]
    assert provider["wire_api"] == "responses"
    assert (config["model_context_window"], config["model_auto_compact_token_limit"]) == (32768, 26214)
    return provider["base_url"], record.environment[provider["env_key"]], config["model"]


def gemini_target(record: AgentRecord) -> tuple[str, str, str]:
    settings = json.loads(record.files[".gemini/settings.json"])
    assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
    assert settings["model"]["compressionThreshold"] == 0.0219
    assert "GOOGLE_GENAI_USE_VERTEXAI" not in record.environment
    option, model, *_ = record.arguments
    assert option == "-m"
    return record.environment["GOOGLE_GEMINI_BASE_URL"], record.environment["GEMINI_API_KEY"], model


def opencode_target(package: str) -> Callable[[AgentRecord], tuple[str, str, str]]:
    def read(record: AgentRecord) -> tuple[str, str, str]:
        config = json.loads(record.environment["OPENCODE_CONFIG_CONTENT"])
        provider: dict[str, Any] = config["provider"]["toolwire"]
        assert provider["npm"] == package
        assert config["small_model"] == "toolwire/up/small"
        model = config["model"].removeprefix("toolwire/")
        assert provider["models"][model]["limit"] == {"context": 32768, "output": 8192}
        assert "up/small" in provider["models"]
        return provider["options"]["baseURL"], provider["options"]["apiKey"], model

    return read


def qwen_target(kind: str, *names: str) -> Callable[[AgentRecord], tuple[str, str, str]]:
    def read(record: AgentRecord) -> tuple[str, str, str]:
        assert record.arguments[:2] == ["--auth-type", kind]
        settings = json.loads(record.files["settings.json"])
        assert settings["security"]["auth"]["selectedType"] == kind
        assert settings["model"]["generationConfig"]["contextWindowSize"] == 32768
        address, key, model = (record.environment[name] for name in names)
        return address, key, model

    return read


SETTINGS = {
    ("claude", "anthropic"): (claude_target, ""),
    ("codex", "openai-responses"): (codex_target, "/v1"),
    ("gemini", "gemini"): (gemini_target, ""),
    ("opencode", "anthropic"): (opencode_target("@ai-sdk/anthropic"), "/v1"),
    ("opencode", "openai-responses"): (opencode_target("@ai-sdk/openai"), "/v1"),
    ("opencode", "openai-chat"): (opencode_target("@ai-sdk/openai-compatible"), "/v1"),
    ("opencode", "gemini"): (opencode_target("@ai-sdk/google"), "/v1beta"),
    ("qwen", "openai-chat"): (qwen_target("openai", "OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"), "/v1"),
    ("qwen", "anthropic"): (qwen_target("anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_MODEL"), ""),
    ("qwen", "gemini"): (qwen_target("gemini", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY", "GEMINI_MODEL"), ""),
}
# Variables that a user may have set, and that would make an agent bypass the gateway.
ELSEWHERE = {"ANTHROPIC_API_KEY": "theirs", "GOOGLE_GENAI_USE_VERTEXAI": "true", "OPENAI_BASE_URL": "http://elsewhere"}


def test_every_agent_and_protocol_has_a_case() -> None:
    assert set(SETTINGS) == {(name, protocol) for name, agent in AGENTS.items() for protocol in agent.protocols}


@pytest.mark.parametrize(("name", "protocol"), SETTINGS)
def test_agent_is_configured_for_the_gateway(desk: UserMachine, root: str, name: str, protocol: str) -> None:
    configured(desk, root)
    options = ["--model", "up/model", "--protocol", protocol]
    options += ["--small-model", "up/small"] if AGENTS[name].has_small_model else []
    code, said = desk.launch(name, *options, "--", "-p", "--yes", "Hi there", **ELSEWHERE)
    assert (code, said) == (0, "")
    read, path = SETTINGS[name, protocol]
    assert read(desk.record) == (root + path, KEY, "up/model")
    assert desk.record.arguments[-3:] == ["-p", "--yes", "Hi there"]
    assert "127.0.0.1" in desk.record.environment["NO_PROXY"]
    kept = [path for path in (desk.folder / "state").rglob("*") if path.is_file()]
    assert not any(KEY in path.read_text() for path in kept)
    assert {
        path.stat().st_mode & 0o77 for path in (desk.folder / "state" / "toolwire" / "agents" / name).iterdir()
    } == {0}


def test_sessions_and_settings_of_a_project_are_kept(desk: UserMachine, root: str) -> None:
    configured(desk, root)
    for agent, added, mine in (
        ("claude", ".claude.json", '{"projects": {"/x": {"trusted": true}}}'),
        ("gemini", ".gemini/settings.json", '{"model": {"name": "x"}, "privacy": {"usageStatisticsEnabled": true}}'),
        ("codex", "config.toml", '[projects."/x \\"y\\""]\ntrust_level = "trusted"\n'),
    ):
        assert desk.launch(agent, "--model", "up/model") == (0, "")
        (folder,) = (desk.folder / "state" / "toolwire" / "agents" / agent).iterdir()
        (folder / added).write_text(mine)
        (folder / "session.jsonl").write_text("earlier")
        folder.chmod(0o755)
        assert desk.launch(agent, "--model", "up/model", "--", "--resume", "abc") == (0, "")
        assert desk.record.files["session.jsonl"] == "earlier"
        assert folder.stat().st_mode & 0o777 == 0o700
        text = desk.record.files[added]
        kept = tomllib.loads(text) if added.endswith(".toml") else json.loads(text)
        if agent == "gemini":
            assert kept["model"] == {"name": "x", "compressionThreshold": 0.0219}
            assert kept["privacy"] == {"usageStatisticsEnabled": False}
        else:
            assert kept["projects"] in ({"/x": {"trusted": True}}, {'/x "y"': {"trust_level": "trusted"}})
            assert len(kept) > 1


def test_program_that_cannot_run_is_a_one_line_error(desk: UserMachine, root: str) -> None:
    configured(desk, root)
    (desk.folder / "bin" / "claude").write_bytes(b"\x00not a program")
    package = AGENTS["claude"].package
    message = f"Error: can't run {desk.folder}/bin/claude: Exec format error; try npm install -g {package}\n"
    assert desk.launch("claude", "--model", "up/m") == (2, message)


def test_unknown_models_are_refused_before_the_agent_starts(desk: UserMachine, root: str) -> None:
    configured(desk, root)
    for options in (["--model", "upp/model"], ["--model", "up/model", "--small-model", "upp/model"]):
        code, message = desk.launch("claude", *options)
        assert code == 2
        assert message.startswith("Error: unknown provider 'upp' in model 'upp/model' (did you mean \"up\"?)")
        assert message.endswith(f" (the gateway at {root} was already running: start another one with --new-gateway)\n")
        assert message.count("\n") == 1
    assert desk.launch("codex", "--small-model", "up/model") == (
        2,
        "Error: codex uses one model for everything: leave out --small-model\n",
    )
    assert not (desk.folder / "work" / "told.json").exists()


def test_secret_of_a_configured_key_is_taken_from_the_environment(desk: UserMachine) -> None:
    config = f'[server]\nport = 9\n[keys.me]\nhash = "{hash_secret("my-secret")}"\n'
    (desk.folder / "work" / "toolwire.toml").write_text(config)
    code, output = desk.launch("claude", TOOLWIRE_KEY="")
    assert (code, output) == (2, "Error: the gateway needs a key: set TOOLWIRE_KEY to the secret of one of [keys]\n")
    for options in ([], ["--model", "anthropic/simulated"]):
        code, output = desk.launch("claude", *options, TOOLWIRE_KEY="wrong")
        assert (code, output.count("\n")) == (2, 1)
        assert re.search(r"the gateway at \S+ rejects this key: set TOOLWIRE_KEY to one of its keys", output)
    code, output = desk.launch("claude", TOOLWIRE_KEY="my-secret")
    assert code == 0, output
    assert desk.record.environment["ANTHROPIC_AUTH_TOKEN"] == "my-secret"


def test_running_gateway_that_requires_a_key_is_used_with_that_of_the_environment(desk: UserMachine, root: str) -> None:
    (desk.folder / "work" / "toolwire.toml").write_text(f"[server]\nport = {root.rpartition(':')[2]}\n")
    message = f"the gateway at {root} needs a key: set TOOLWIRE_KEY to one of its keys, or start another one"
    assert desk.launch("claude", TOOLWIRE_KEY="") == (2, f"Error: {message} with --new-gateway\n")
    assert desk.launch("claude", "--model", "up/m", TOOLWIRE_KEY=KEY) == (0, "")
    assert desk.record.environment["ANTHROPIC_AUTH_TOKEN"] == KEY


def test_running_gateway_on_the_simulator_is_named_if_only_this_terminal_has_providers(
    desk: UserMachine, providers_url: str
) -> None:
    with serve_app(build_silent_app("", simulated_providers(providers_url))) as url:
        port = f"[server]\nport = {url.rpartition(':')[2]}\n"
        (desk.folder / "work" / "toolwire.toml").write_text(port)
        assert desk.launch("claude") == (0, "")
        (desk.folder / "work" / "toolwire.toml").write_text(
            PROVIDERS.replace("URL", providers_url).replace("[server]\nport = 9\n", port)
        )
        code, output = desk.launch("claude", "--model", "openai/gpt-5.5")
        assert code == 0
        assert output == (
            f"warning: the gateway at {url} uses the built-in simulator, not openai, anthropic, gemini: "
            "start it again here, or start another one with --new-gateway\n"
        )
        assert desk.record.environment["ANTHROPIC_BASE_URL"] == url
        assert desk.launch("claude", "--model", "openai/gpt-5.5", "--new-gateway") == (0, "")
        assert desk.record.environment["ANTHROPIC_BASE_URL"] != url


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["claude", "-p", "Hi"],
            "unknown option '-p'; options of the agent go after --, as in `toolwire launch claude -- -p`",
        ),
        (["codex", "--modle", "x"], "unknown option '--modle' (did you mean \"--model\""),
        (["claude", "-rx"], "toolwire launch claude -- -r"),
    ],
)
def test_option_of_the_agent_before_the_dashes_is_explained(
    desk: UserMachine, arguments: list[str], message: str
) -> None:
    code, output = desk.launch(*arguments)
    assert (code, message in output, output.count("\n")) == (2, True, 1), output


def test_gateway_runs_as_long_as_the_agent(desk: UserMachine) -> None:
    assert desk.launch("claude", FAKE_CODE="3") == (3, "")
    assert desk.record.health == '{"status":"ok","simulated":true}'
    assert desk.record.arguments == []
    # The gateway is in a session of its own, so that Ctrl-C in the agent does not stop it.
    assert len(set(desk.record.sessions)) == 2
    with pytest.raises(Exception, match="refused"):
        http_client.get(desk.record.environment["ANTHROPIC_BASE_URL"] + "/healthz")


def test_no_temporary_files_remain_and_user_settings_are_unchanged(desk: UserMachine) -> None:
    user_settings = desk.folder / "home" / ".claude.json"
    user_settings.write_text("{}")
    assert desk.launch("claude", "--model", "anthropic/claude-opus-5-5")[0] == 0
    assert [one.name for one in user_settings.parent.rglob("*")] == [".claude.json"]
    assert user_settings.read_text() == "{}"
    assert list((desk.folder / "tmp").iterdir()) == []
    assert {one.name for one in (desk.folder / "state" / "toolwire").iterdir()} == STATE_FILES


def test_termination_signals_are_forwarded_to_the_agent(desk: UserMachine) -> None:
    with desk.start("claude", FAKE_WAITS="600") as process:
        wait_until((desk.folder / "work" / "told.json").exists)
        process.send_signal(signal.SIGINT)  # handled by the agent
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 7
    assert {one.name for one in (desk.folder / "state" / "toolwire").iterdir()} == STATE_FILES


def test_exit_code_of_an_agent_that_was_killed_is_that_of_a_shell(desk: UserMachine, root: str) -> None:
    configured(desk, root)
    with desk.start("claude", FAKE_WAITS="600") as process:
        wait_until((desk.folder / "work" / "told.json").exists)
        os.kill(desk.record.process, signal.SIGKILL)
        assert process.wait(DEADLINE) == 128 + signal.SIGKILL


def test_unwritable_state_folder_is_a_one_line_error(desk: UserMachine) -> None:
    (desk.folder / "state").write_text("in the way")
    state_folder = desk.folder / "state" / "toolwire"
    assert desk.launch("claude") == (2, f"Error: can't write to {state_folder}: Not a directory\n")


@pytest.mark.parametrize(
    ("arguments", "config", "message"),
    [
        (
            ["codex", "--protocol", "ollama"],
            "",
            "codex does not support protocol 'ollama'; expected one of openai-responses",
        ),
        (["codex", "--config", "none.toml"], "", "none.toml: No such file or directory"),
        (["codex"], "[server]\nprot = 3\n", 'toolwire.toml:2:1: unknown key "prot" in [server]'),
        (
            ["codex", "--model", "nobody/knows"],
            '[providers.up]\nprotocol = "ollama"\nbase_url = "http://x"\n',
            "nobody",
        ),
    ],
)
def test_start_failures_are_one_line_errors(desk: UserMachine, arguments: list[str], config: str, message: str) -> None:
    (desk.folder / "work" / "toolwire.toml").write_text(config + "\n[server]\nport = 9\n" * ("server" not in config))
    code, record = desk.launch(*arguments)
    assert code == 2
    assert message in record
    assert record.count("\n") == 1
    assert not (desk.folder / "work" / "told.json").exists()


@pytest.mark.parametrize("name", AGENTS)
def test_missing_agent_names_the_package(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(main, ["launch", name], env={"PATH": str(tmp_path)})
    assert result.exit_code == 2
    assert result.output == f"Error: {name} is not installed: npm install -g {AGENTS[name].package}\n"


def test_started_gateway_ends_even_if_launch_is_killed(desk: UserMachine) -> None:
    process = desk.start("claude", FAKE_WAITS="600")
    waited((desk.folder / "work" / "told.json").exists)
    root = desk.record.environment["ANTHROPIC_BASE_URL"]
    assert is_healthy(root)
    process.kill()
    process.wait()
    try:
        waited(lambda: not is_healthy(root))
    finally:
        os.kill(desk.record.process, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()


def waited(so: Callable[[], bool]) -> None:
    wait_until(so)


def is_healthy(root: str) -> bool:
    try:
        return http_client.get(f"{root}/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def guide_commands(name: str) -> list[str]:
    """Return the commands in the guide of an agent."""
    guide = (Path(__file__).parents[2] / "docs" / "guides" / f"{name}.md").read_text(encoding="utf-8")
    return re.findall(r"^toolwire (launch .*)$", guide, re.MULTILINE)


@pytest.mark.parametrize("name", AGENTS)
def test_commands_in_the_guide_start_the_agents(desk: UserMachine, providers_url: str, name: str) -> None:
    commands = guide_commands(name)
    assert commands
    for command in commands:
        _, agent, *arguments = shlex.split(command)
        assert agent == name
        (desk.folder / "work" / "toolwire.toml").write_text(PROVIDERS.replace("URL", providers_url))
        code, said = desk.launch(agent, *arguments)
        assert (code, said) == (0, "")
        behind = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
        assert desk.record.arguments[len(desk.record.arguments) - len(behind) :] == behind


def test_commands_that_resume_a_session_name_its_model() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "agents.md").read_text(encoding="utf-8")
    for name, agent in AGENTS.items():
        arguments = re.escape(agent.resume.replace("ID", "SESSION"))
        assert re.search(rf"^toolwire launch {name} --model \S+/\S+ -- {arguments}$", page, re.MULTILINE), name
    shown = " ".join(CliRunner().invoke(main, ["launch", "--help"]).output.split())
    assert re.search(r"toolwire launch claude --model \S+ -- --resume SESSION", shown)


def test_provider_that_cannot_be_reached_is_named_before_the_agent_starts(
    desk: UserMachine, providers_url: str
) -> None:
    up, down = PROVIDERS.replace("URL", providers_url), PROVIDERS.replace("URL", "http://127.0.0.1:9")
    down = down[down.index("[providers.openai]") : down.index("[providers.anthropic]")].replace("openai]", "down]")
    unset = f'[providers.unset]\nprotocol = "anthropic"\nbase_url = "{providers_url}"\napi_key = "env:NOT_SET"\n'
    (desk.folder / "work" / "toolwire.toml").write_text(up + down + unset)
    code, said = desk.launch("claude", "--model", "down/gpt-5.5")
    assert code == 0
    assert said.startswith("warning: down: http://127.0.0.1:9, without a key: can't connect to 127.0.0.1:9")
    assert said.endswith("; check base_url and your network connection\n")
    assert len(said.splitlines()) == 1
    assert "unset: environment variable NOT_SET is not set" in desk.launch("claude", "--model", "unset/m")[1]
    assert desk.launch("claude", "--model", "openai/gpt-5.5") == (0, "")


def test_provider_that_a_running_gateway_cannot_reach_is_named_before_the_agent_starts(
    desk: UserMachine, providers_url: str
) -> None:
    with serve_app(Simulator(require_key=True)) as locked:
        anthropic = f'protocol = "anthropic"\nbase_url = "{locked}"\n'
        config = PROVIDERS.replace("URL", providers_url) + f"[providers.locked]\n{anthropic}"
        config += '[providers.down]\nprotocol = "anthropic"\nbase_url = "http://127.0.0.1:9"\n'
        config += '[providers.bare]\nprotocol = "anthropic"\nbase_url = "URL"\n'.replace("URL", f"{providers_url}/x")
        with serve_app(build_silent_app(config)) as url:
            (desk.folder / "work" / "toolwire.toml").write_text(f"[server]\nport = {url.rpartition(':')[2]}\n")
            place = f"from the gateway that already runs at {url}; run `toolwire doctor`, and start that gateway again"
            for name, problem in (
                ("down", "can't connect to 127.0.0.1:9: connection refused"),
                ("locked", "key rejected (401)"),
            ):
                code, said = desk.launch("claude", "--model", f"{name}/m")
                assert code == 0
                assert (
                    said.replace("Connection", "connection")
                    == f"warning: {name}: {problem}, {place}, or start another one with --new-gateway\n"
                )
            for name in ("openai", "bare"):
                assert desk.launch("claude", "--model", f"{name}/m") == (0, "")


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_agent_whose_own_models_nobody_serves_is_named_before_it_starts(
    desk: UserMachine, providers_url: str, name: str
) -> None:
    (desk.folder / "work" / "toolwire.toml").write_text(
        f'[server]\nport = 9\n[providers.other]\nprotocol = "openai-chat"\nbase_url = "{providers_url}"\n'
    )
    code, output = desk.launch(name)
    assert code == 0
    assert f"no provider serves the models that {name} uses by itself" in output
    assert output.endswith("choose one with --model PROVIDER/MODEL (`toolwire models` lists them)\n")
    assert desk.launch(name, "--model", "other/m") == (0, "")
    assert desk.launch(name, TOOLWIRE_MODEL="other/m") == (0, "")
