"""The pages of hosts in the documentation, written from the profiles: `python -m tests.documentation.host_page`.

`docs/reference/hosts.md` lists the hosts, and `docs/hosts/NAME.md` describes one: how to configure it, how it was
verified, and what it accepts.
"""

import re
from collections import Counter
from pathlib import Path

from tests.documentation.page_lists import DOCS
from tests.support.paths import ROOT
from toolwire.codec.hosts.description import describe_addresses, describe_facts, describe_source, describe_value
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.hosts.registry import HOST_NAMES, host_profiles

PAGE = DOCS / "reference" / "hosts.md"
FOLDER = DOCS / "hosts"
HEAD = """# Hosts

Many servers speak OpenAI's or Anthropic's protocols, and each rejects some part of them.
A host profile says what a server accepts.
[Other servers](../guides/hosts.md) explains how profiles are chosen, and how to correct or add one.
`toolwire hosts NAME` shows the same facts. `python -m tests.documentation.host_page` writes these pages.

The page of a host has its configuration, how it was verified, and the facts in which it differs from OpenAI's API, for
`anthropic` from Anthropic's. The last column says how each fact is known:

* documented: the host's documentation
* source: the server's code
* types: the types of the host's SDK
* peer: the code of another project that supports the host
* reported: bug reports
* tried: tried with the server
* unverified: not confirmed by anyone; the profile has the value that is safe

| host | server | protocols | recognized by |
|---|---|---|---|
"""
COLLECTED = "November 2026"
"""The month in which the facts were collected."""

# By host and protocol. Those of a server on the user's machine have no key.
BASE_URLS = {
    ("openai", "openai-responses"): "https://api.openai.com",
    ("openai", "openai-chat"): "https://api.openai.com",
    ("azure", "openai-chat"): "https://RESOURCE.openai.azure.com/openai/v1",
    ("deepseek", "openai-chat"): "https://api.deepseek.com",
    ("deepseek", "anthropic"): "https://api.deepseek.com/anthropic",
    ("mistral", "openai-chat"): "https://api.mistral.ai/v1",
    ("groq", "openai-chat"): "https://api.groq.com/openai/v1",
    ("moonshot", "openai-chat"): "https://api.moonshot.ai/v1",
    ("moonshot", "anthropic"): "https://api.moonshot.ai/anthropic",
    ("zai", "openai-chat"): "https://api.z.ai/api/paas/v4",
    ("dashscope", "openai-chat"): "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    ("xai", "openai-chat"): "https://api.x.ai/v1",
    ("vllm", "openai-chat"): "http://127.0.0.1:8000/v1",
    ("sglang", "openai-chat"): "http://127.0.0.1:30000/v1",
    ("llamacpp", "openai-chat"): "http://127.0.0.1:8080/v1",
    ("lmstudio", "openai-chat"): "http://127.0.0.1:1234/v1",
    ("ollama", "ollama"): "http://127.0.0.1:11434",
    ("copilot", "openai-chat"): "https://api.githubcopilot.com",
    ("openrouter", "openrouter"): "https://openrouter.ai",
    ("together", "openai-chat"): "https://api.together.xyz/v1",
    ("fireworks", "openai-chat"): "https://api.fireworks.ai/inference/v1",
    ("cerebras", "openai-chat"): "https://api.cerebras.ai/v1",
    ("nvidia", "openai-chat"): "https://integrate.api.nvidia.com/v1",
    ("minimax", "openai-chat"): "https://api.minimax.io/v1",
    ("minimax", "anthropic"): "https://api.minimax.io/anthropic",
    ("volcengine", "openai-chat"): "https://ark.cn-beijing.volces.com/api/v3",
    ("gemini", "openai-chat"): "https://generativelanguage.googleapis.com/v1beta/openai",
    ("anthropic-chat", "openai-chat"): "https://api.anthropic.com/v1",
}
_PLATFORMS = {"bedrock": 'region = "eu-central-1"\n', "vertex": 'region = "global"\nproject = "my-project"\n'}
# Profiles of servers that are not known, or only by the name of a model.
_UNNAMED = ("generic", "compatible")
_REAL_SERVERS = {"llamacpp": "requests of five agents and SDKs at a real llama.cpp server"}
_VENDOR_PACKAGES = {
    "mistral": ("mistral-common", "mistralai"),
    "groq": ("groq",),
    "cerebras": ("cerebras-cloud-sdk",),
    "zai": ("zai-sdk",),
}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;").strip()


def _section(profile: HostProfile) -> list[str]:
    lines = [f"## `{profile.protocol}`\n"]
    rows = [
        f"| `{fact.name}` | {_cell(fact.value) or '(empty)'} | {_cell(describe_source(fact.source))} |"
        for fact in describe_facts(profile)
    ]
    if rows:
        lines += ["| fact | value | known from |\n|---|---|---|", *rows, ""]
    else:
        lines.append("Accepts the entire protocol.\n")
    if profile.errors.templates:
        lines.append("| rejected | error message |\n|---|---|")
        lines += [
            f"| `{fact}` | {template.status} `{template.message.replace('|', '')}` |"
            for fact, template in profile.errors.templates.items()
        ]
        lines.append("")
    return lines


def _configuration(profiles: list[HostProfile]) -> list[str]:
    """Render a provider's table for each protocol whose address is known."""
    tables: list[str] = []
    for profile in profiles:
        name = profile.name if not tables else f"{profile.name}-{profile.protocol}"
        head = f'[providers.{name}]\nprotocol = "{profile.protocol}"\n'
        key = f'api_key = "env:{re.sub("[^A-Z]", "_", profile.name.upper())}_API_KEY"\n'
        if profile.name in _PLATFORMS:
            tables.append(f'{head}host = "{profile.name}"\n{_PLATFORMS[profile.name]}{key}')
        elif (url := BASE_URLS.get((profile.name, profile.protocol))) is not None:
            is_local = "127.0.0.1" in url
            host = f'host = "{profile.name}"\n' if is_local else ""
            tables.append(f'{head}base_url = "{url}"\n{host}{"" if is_local else key}')
    if not tables:
        return []
    fence = "text" if "RESOURCE" in "".join(tables) else "toml"
    return ["## Configuration\n", f"```{fence}", "\n".join(tables) + "```\n"]


def _host_matrix_row(title: str) -> tuple[int, int] | None:
    """Return the requests and the accepted ones of a host, as `make host-matrix` counted them."""
    text = (DOCS / "reference" / "agents-on-hosts.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^\| {re.escape(title)} \| [^|]+ \| [^|]+ \| (\d+) \| (\d+) \| (\d+) \|", text, re.MULTILINE)
    if not rows:
        return None
    return sum(int(row[0]) - int(row[2]) for row in rows), sum(int(row[1]) for row in rows)


def _recorded_agents() -> str:
    """Return the agents and versions whose requests are recorded, and when."""
    text = (ROOT / "tests" / "fixtures" / "agents" / "README.md").read_text(encoding="utf-8")
    match = re.search(r"on ([\d-]+): (.+?)\. One of them", text, re.DOTALL)
    assert match is not None
    return f"{' '.join(match[2].split())}, {match[1]}"


def _verification(profiles: list[HostProfile]) -> list[str]:
    """Render how the facts of a host are known, and what was tried."""
    name, title = profiles[0].name, profiles[0].title
    kinds = Counter(fact.source.kind for profile in profiles for fact in describe_facts(profile) if fact.source)
    facts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    rows = [f"| facts below, collected in {COLLECTED} | {facts or 'none'} |"]
    if (counts := _host_matrix_row(title)) is not None:
        requests, accepted = counts
        result = f"{accepted} of {requests} [accepted](../reference/agents-on-hosts.md)"
        rows.append(f"| recorded requests ({_recorded_agents()}) at a simulated host, `make host-matrix` | {result} |")
    versions = dict(
        re.findall(
            r"^([\w-]+)==(\S+)$",
            (ROOT / "tests" / "real_servers" / "requirements.txt").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )
    if name in _REAL_SERVERS:
        rows.append(
            f"| {_REAL_SERVERS[name]} (xllamacpp {versions['xllamacpp']}), `make test-servers` | all accepted |"
        )
    rows += [
        f"| request validation or types of {package} {versions[package]}, `make test-servers` | accepted |"
        for package in _VENDOR_PACKAGES.get(name, ())
    ]
    note = "" if name in _REAL_SERVERS else "No test sends a request to the real server. "
    probe = f"`toolwire doctor --probe {'PROVIDER' if name in _UNNAMED else name}` finds out what yours accepts."
    return ["## Verified with\n", "| how | result |\n|---|---|", *rows, "", f"{note}{probe}\n"]


def render_host(name: str) -> str:
    """Render the page of one host."""
    profiles = list(host_profiles(name).values())
    protocols = " and ".join(
        filter(None, (", ".join(f"`{one.protocol}`" for one in profiles[:-1]), f"`{profiles[-1].protocol}`"))
    )
    addresses = describe_addresses(profiles[0])
    recognized = f"recognizes it by {_cell(addresses)}" if addresses else f'uses this profile with `host = "{name}"`'
    lines = [f"# {profiles[0].title}\n", f"The host `{name}` speaks {protocols}. toolwire {recognized}.\n"]
    lines += _configuration(profiles)
    lines += _verification(profiles)
    lines.append(
        "The tables list how the server differs from the vendor's API; [Hosts](../reference/hosts.md) explains them.\n"
    )
    for profile in profiles:
        lines += _section(profile)
    return "\n".join(lines).rstrip() + "\n"


def render_pages() -> dict[Path, str]:
    """Render all pages, by their paths."""
    rows = []
    for name in HOST_NAMES:
        profiles = list(host_profiles(name).values())
        protocols = describe_value(tuple(profile.protocol for profile in profiles))
        link = f"[`{name}`](../hosts/{name}.md)"
        rows.append(f"| {link} | {profiles[0].title} | {protocols} | {_cell(describe_addresses(profiles[0]))} |")
    pages = {FOLDER / f"{name}.md": render_host(name) for name in HOST_NAMES}
    return {PAGE: HEAD + "\n".join(rows) + "\n", **pages}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    rendered = render_pages()
    for old in set(FOLDER.glob("*.md")) - rendered.keys():
        old.unlink()
    for path, text in rendered.items():
        path.write_text(text, encoding="utf-8")
