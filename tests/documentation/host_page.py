"""The page of hosts in the documentation, written from the profiles: `python -m tests.documentation.host_page`."""

from tests.support.paths import ROOT
from toolwire.codec.hosts.description import describe_addresses, describe_facts, describe_source, describe_value
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.hosts.registry import HOST_NAMES, host_profiles

PAGE = ROOT / "docs" / "reference" / "hosts.md"
HEAD = """# Hosts

Many servers speak OpenAI's or Anthropic's protocols, and each rejects some part of them.
A host profile says what a server accepts.
[Other servers](../guides/hosts.md) explains how profiles are chosen, and how to correct or add one.
`toolwire hosts NAME` shows the same facts. `python -m tests.documentation.host_page` writes this page.

Each table lists the facts in which a server differs from OpenAI's API, for `anthropic` from Anthropic's.
The last column says how each is known:

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


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;").strip()


def _section(profile: HostProfile) -> list[str]:
    lines = [f"### {profile.name}: {profile.protocol}\n"]
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


def render_page() -> str:
    """Render the page."""
    lines = []
    rows = []
    for name in HOST_NAMES:
        profiles = list(host_profiles(name).values())
        protocols = describe_value(tuple(profile.protocol for profile in profiles))
        rows.append(f"| `{name}` | {profiles[0].title} | {protocols} | {_cell(describe_addresses(profiles[0]))} |")
        lines.append(f"## {profiles[0].title}\n")
        for profile in profiles:
            lines += _section(profile)
    return HEAD + "\n".join(rows) + "\n\n" + "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
