"""`toolwire hosts`."""

import json
import re
from pathlib import Path

from click.testing import CliRunner, Result

from toolwire.cli import main
from toolwire.codec.hosts.registry import HOST_NAMES


def run_hosts(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["hosts", *arguments])


def test_overview_lists_all_hosts_with_their_addresses() -> None:
    result = run_hosts()
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.output.splitlines() if not line.startswith(" ")]
    assert names == list(HOST_NAMES)
    assert "api.deepseek.com" in result.output


def test_facts_are_shown_with_their_sources() -> None:
    output = run_hosts("deepseek").output
    assert "DeepSeek: anthropic" in output
    assert re.search(r"^  content\.string_roles {2,}system user assistant tool$", output, re.MULTILINE)
    assert "[reported: cline/cline#230," in output
    # Values are aligned, behind the longest name.
    starts = re.findall(r"^(  \w+\.\w+ +)\S", output, re.MULTILINE)
    assert {len(start) for start in starts} == {len("  output.json_in_prompt_required  ")}


def test_json_has_all_protocols_of_a_host() -> None:
    profiles = json.loads(run_hosts("groq", "--json").output)
    assert [profile.get("protocol", "openai-chat") for profile in profiles] == ["openai-chat", "openai-responses"]
    assert profiles[0]["sources"]["messages.members"]["kind"] == "reported"
    assert len(json.loads(run_hosts("--json").output)) > len(HOST_NAMES)


def test_configured_hosts_are_included(tmp_path: Path) -> None:
    path = tmp_path / "toolwire.toml"
    path.write_text('[hosts.company]\nextends = "groq"\n[hosts.company.tools]\nmax_count = 7\n')
    output = run_hosts("company", "--config", str(path)).output
    assert re.search(r"tools\.max_count {2,}7$", output, re.MULTILINE)


def test_unknown_host_is_bad_input() -> None:
    result = run_hosts("deepsek")
    assert result.exit_code == 2
    assert "unknown host 'deepsek': did you mean \"deepseek\"?" in result.output
