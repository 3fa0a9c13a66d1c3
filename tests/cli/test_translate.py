"""`toolwire translate` through click's test runner and as a subprocess."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolwire.cli import main

TOOL = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
REQUEST: dict[str, Any] = {
    "model": "some-model",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Is it raining in Oslo?"}],
    "tools": [TOOL],
}
# Chat has no such parameter.
LOSSY_REQUEST = {**REQUEST, "top_k": 5}
RESPONSE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "some-model",
    "content": [{"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}}],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "output_tokens": 5},
}
ERROR = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down."}}
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
TOOLWIRE = str(Path(sys.executable).with_name("toolwire"))


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def anthropic_stream(**message: Any) -> bytes:
    usage = {"input_tokens": 3, "output_tokens": 1}
    start = {**RESPONSE, "content": [], "stop_reason": None, "usage": usage, **message}
    return sse(
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It is "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "raining."}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 4},
        },
        {"type": "message_stop"},
    )


def translate(
    body: Any, *options: str, source: str = "anthropic", target: str = "openai-chat", kind: str = "request"
) -> Result:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    arguments = ["translate", "--from", source, "--to", target, "--kind", kind, *options]
    return CliRunner().invoke(main, arguments, input=sent)


def assert_bad_input(result: Result, *mentions: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout_bytes == b""
    assert len(result.stderr.splitlines()) == 1
    for mention in mentions:
        assert mention in result.stderr


def test_request_is_translated() -> None:
    result = translate(REQUEST)
    assert result.exit_code == 0, result.output
    sent = json.loads(result.stdout)
    assert sent["model"] == "some-model"
    assert sent["messages"] == [{"role": "user", "content": "Is it raining in Oslo?"}]
    assert sent["tools"][0]["function"]["name"] == "get_weather"
    assert sent["tools"][0]["function"]["parameters"] == TOOL["input_schema"]


def test_request_is_the_default_kind() -> None:
    arguments = ["translate", "--from", "anthropic", "--to", "openai-chat"]
    result = CliRunner().invoke(main, arguments, input=json.dumps(REQUEST))
    assert result.stdout == translate(REQUEST).stdout


def test_request_to_the_same_protocol_is_unchanged() -> None:
    body = {**LOSSY_REQUEST, "a_field_of_tomorrow": [1, None, 12345678901234567890]}
    result = translate(body, "--strict", target="anthropic")
    assert json.loads(result.stdout) == body
    assert result.stderr == ""


def test_response_is_translated() -> None:
    result = translate(RESPONSE, kind="response")
    choice = json.loads(result.stdout)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    call = choice["message"]["tool_calls"][0]
    assert (call["id"], call["function"]["name"]) == ("toolu_1", "get_weather")
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}


def test_error_is_translated() -> None:
    result = translate(ERROR, kind="error")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["error"]["message"] == "Slow down."


def test_stream_is_translated() -> None:
    result = translate(anthropic_stream(), kind="stream")
    assert result.exit_code == 0, result.output
    frames = [line.removeprefix("data: ") for line in result.stdout.splitlines() if line]
    assert frames[-1] == "[DONE]"
    deltas = [choice["delta"] for frame in frames[:-1] for choice in json.loads(frame)["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "It is raining."


def test_losses_are_listed_on_stderr() -> None:
    result = translate(LOSSY_REQUEST)
    assert result.exit_code == 0
    assert "top_k" not in json.loads(result.stdout)
    assert [line for line in result.stderr.splitlines() if line.startswith("warning dropped /top_k: ")]


def test_report_option_writes_losses_to_a_file(tmp_path: Path) -> None:
    report = tmp_path / "losses.json"
    result = translate(LOSSY_REQUEST, "--report", str(report))
    assert result.exit_code == 0
    assert result.stderr == ""
    (loss,) = [loss for loss in json.loads(report.read_bytes()) if loss["path"] == "/top_k"]
    assert loss["kind"] == "dropped"
    assert loss["reason"]
    assert loss["target"] is None


def test_report_without_losses_is_an_empty_list(tmp_path: Path) -> None:
    report = tmp_path / "losses.json"
    translate(REQUEST, "--report", str(report), target="anthropic")
    assert json.loads(report.read_bytes()) == []


@pytest.mark.parametrize(
    ("body", "kind", "lost"),
    [
        (LOSSY_REQUEST, "request", "/top_k"),
        (anthropic_stream(container={"id": "c"}), "stream", "/container"),
    ],
)
def test_strict_refuses_a_loss(body: Any, kind: str, lost: str, tmp_path: Path) -> None:
    report = tmp_path / "losses.json"
    assert translate(body, kind=kind).exit_code == 0
    result = translate(body, "--strict", "--report", str(report), kind=kind)
    assert result.exit_code == 3
    assert result.stdout_bytes == b""
    assert lost in result.stderr
    assert lost in [loss["path"] for loss in json.loads(report.read_bytes())]


@pytest.mark.parametrize(
    ("body", "kind"), [(LOSSY_REQUEST, "request"), (anthropic_stream(container={"id": "c"}), "stream")]
)
def test_strict_error_accepts_warnings(body: Any, kind: str) -> None:
    assert translate(body, "--strict=error", kind=kind).exit_code == 0


def test_losses_of_no_consequence_are_counted_and_never_refused() -> None:
    body = anthropic_stream(a_field_of_tomorrow=True)
    result = translate(body, "--strict", kind="stream")
    assert result.exit_code == 0
    assert "a_field_of_tomorrow" not in result.stderr
    assert "of no consequence" in result.stderr


def test_model_fills_in_for_a_body_without_one() -> None:
    body = {key: value for key, value in REQUEST.items() if key != "model"}
    assert json.loads(translate(body, "--model", "another-model").stdout)["model"] == "another-model"


def test_hosted_tools_are_dropped_or_refused() -> None:
    body = {**REQUEST, "tools": [TOOL, {"type": "code_execution_20250825", "name": "code_execution"}]}
    dropped = translate(body, "--hosted-tools", "drop")
    assert dropped.exit_code == 0, dropped.output
    assert [tool["function"]["name"] for tool in json.loads(dropped.stdout)["tools"]] == ["get_weather"]
    assert "/tools/1" in dropped.stderr
    refused = translate(body, "--hosted-tools", "refuse")
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "/tools/1" in refused.stderr


def test_binary_results_are_native_or_a_summary() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}
    turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    body = {**REQUEST, "messages": [*REQUEST["messages"], *turns]}
    assert IMAGE in translate(body, "--binary-results", "native").stdout
    summary = translate(body, "--binary-results", "summary")
    assert summary.exit_code == 0, summary.output
    assert IMAGE not in summary.stdout


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[]"])
@pytest.mark.parametrize("kind", ["request", "response", "error"])
def test_invalid_body_is_bad_input(body: bytes, kind: str) -> None:
    assert_bad_input(translate(body, kind=kind), "anthropic")


def test_bad_input_names_the_location() -> None:
    wrong = [*REQUEST["messages"], {"role": "user", "content": 7}]
    assert_bad_input(translate({**REQUEST, "messages": wrong}), "anthropic", "/messages/1/content")


def test_bad_input_is_always_one_line() -> None:
    assert_bad_input(translate({**REQUEST, "messages": "two\nlines\r\n"}), "/messages")


def test_broken_stream_leaves_nothing_on_stdout() -> None:
    broken = b'event: message_delta\ndata: {"type": \n\n' + anthropic_stream()
    assert_bad_input(translate(broken, kind="stream"), "anthropic")


def test_unknown_protocol_lists_the_choices() -> None:
    result = translate(REQUEST, target="claude")
    assert_bad_input(result, "'claude'", "anthropic", "openai-chat", "openai-responses")


def test_options_not_for_streams_are_rejected() -> None:
    result = translate(anthropic_stream(), "--model", "m", "--hosted-tools", "drop", kind="stream")
    assert_bad_input(result, "--model", "--hosted-tools")


def test_report_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    report = tmp_path / "no such folder" / "losses.json"
    assert_bad_input(translate(LOSSY_REQUEST, "--report", str(report)), "losses.json")


def test_help_has_an_example() -> None:
    shown = CliRunner().invoke(main, ["translate", "--help"]).stdout
    assert "toolwire translate --from anthropic --to openai-chat < request.json" in shown


def test_installed_command_runs() -> None:
    command = [TOOLWIRE, "translate", "--from", "anthropic", "--to", "openai-responses"]
    done = subprocess.run(command, input=json.dumps(REQUEST).encode(), capture_output=True, check=True)
    assert json.loads(done.stdout)["tools"][0]["name"] == "get_weather"


def test_closed_pipe_gives_no_traceback(tmp_path: Path) -> None:
    # More than a pipe can buffer, so that the write is still blocked when the reader closes.
    body = {**REQUEST, "messages": [{"role": "user", "content": "rain " * 100_000}]}
    (tmp_path / "request.json").write_text(json.dumps(body))
    command = [TOOLWIRE, "translate", "--from", "anthropic", "--to", "anthropic"]
    with (
        (tmp_path / "request.json").open("rb") as request,
        subprocess.Popen(command, stdin=request, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_share_that_could_be_read_from_the_cache_is_printed(tmp_path: Path) -> None:
    previous = tmp_path / "previous.json"
    previous.write_text(json.dumps(REQUEST))
    later = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And tomorrow?"}]
    body = json.dumps({**REQUEST, "messages": [*REQUEST["messages"], *later]})
    arguments = ["translate", "--from", "anthropic", "--to", "gemini", "--model", "m", "--previous", str(previous)]
    result = CliRunner().invoke(main, arguments, input=body)
    assert result.exit_code == 0
    assert re.search(r"could be read from the prompt cache: \d+ of about \d+ tokens \(\d\d%\)", result.stderr)
    refused = CliRunner().invoke(main, [*arguments, "--kind", "response"], input=json.dumps(RESPONSE))
    assert (refused.exit_code, "--previous can't be used" in refused.stderr) == (2, True)


def test_cache_marks_are_added_on_request() -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
    arguments = ["translate", "--from", "openai-chat", "--to", "anthropic"]
    assert "cache_control" not in json.loads(CliRunner().invoke(main, arguments, input=body).stdout)
    marked = CliRunner().invoke(main, [*arguments, "--cache", "auto"], input=body)
    assert json.loads(marked.stdout)["cache_control"] == {"type": "ephemeral"}
