"""JSON between marks: Hermes, Qwen 2.5 and 3, and the dialects that differ from it only in their marks."""

from collections.abc import Sequence

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall, read_calls
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Incomplete, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.rendering import (
    CallRenderer,
    ResultRenderer,
    WrittenCall,
    WrittenResult,
    call_renderer,
    render_list,
    render_object,
    render_string,
    render_tool_responses,
)


def _json_dialect(
    name: str,
    openers: tuple[str, ...],
    closer: str = "",
    *,
    lists_only: bool = False,
    models: tuple[str, ...] = (),
    closers: tuple[str, ...] = (),
    render_calls: CallRenderer | None = None,
    render_results: ResultRenderer = render_tool_responses,
) -> Dialect:
    """Return a dialect of JSON after an opening mark, and before a closing mark if it has one."""
    opening_bracket = next((mark[-1] for mark in openers if mark.endswith(("[", "{"))), "")

    def parse(cursor: Cursor) -> Parse[list[ParsedCall]]:
        """Parse one block."""
        yield from cursor.expect(*openers)
        if opening_bracket:
            cursor.position -= 1
        first = yield from cursor.skip_space()
        if lists_only and first and first != "[":
            raise Mismatch
        source = yield from cursor.read_json()
        calls = read_calls(source)
        if closer:
            yield from _close_block(cursor, openers, closer)
        return calls

    def render(call: WrittenCall) -> str:
        """Write one call between its marks."""
        return f"{openers[0]}\n{render_object(call)}" + (f"\n{closer}" if closer else "")

    return Dialect(
        name,
        openers,
        parse,
        render_calls or call_renderer(render),
        render_results,
        closers=((closer,) if closer else ()) + closers,
        models=models,
    )


def _close_block(cursor: Cursor, openers: tuple[str, ...], closer: str) -> Parse[None]:
    """Read the closing mark after superfluous braces; the end of the turn or the next block may stand in its place."""
    end = cursor.position
    while (yield from cursor.skip_space()) == "}":
        cursor.position += 1
    if (yield from cursor.accept(closer)):
        return
    if (yield from cursor.peek()) and not (yield from cursor.upcoming(*openers)):
        raise Mismatch
    if cursor.closed and cursor.position >= len(cursor.text):
        if not cursor.finished and end < len(cursor.text.rstrip()):
            raise Incomplete
        return


def _render_action(calls: Sequence[WrittenCall]) -> str:
    """Write calls as Command R and A do, with the number of each."""
    objects = [
        f'{{"tool_call_id": "{call.number}", {render_object(call, "parameters", "tool_name")[1:]}' for call in calls
    ]
    return f"<|START_ACTION|>[\n    {f',{chr(10)}    '.join(objects)}\n]<|END_ACTION|>"


def _render_action_results(results: Sequence[WrittenResult]) -> str:
    """Write results as Command R and A read them."""
    objects = [
        f'{{"tool_call_id": "{result.number}", "results": {{"0": {render_string(result.text)}}}, "is_error": null}}'
        for result in results
    ]
    return f"<|START_TOOL_RESULT|>[\n    {f',{chr(10)}    '.join(objects)}\n]<|END_TOOL_RESULT|>"


HERMES = _json_dialect("hermes", ("<tool_call>",), "</tool_call>", models=("hermes", "qwen2.5", "qwen3", "qwq"))
LONGCAT = _json_dialect("longcat", ("<longcat_tool_call>",), "</longcat_tool_call>", models=("longcat",))
TOOLS_TAG = _json_dialect("tools_tag", ("<tools>",), "</tools>")
HUNYUAN_A13B = _json_dialect(
    "hunyuan_a13b",
    ("<tool_calls>",),
    "</tool_calls>",
    lists_only=True,
    models=("hunyuan-a13b", "jamba"),
    render_calls=lambda calls: f"<tool_calls>{render_list(calls)}</tool_calls>",
)
GRANITE = _json_dialect(
    "granite",
    ("<|tool_call|>", "<tool_call>"),
    lists_only=True,
    models=("granite-3", "granite3"),
    closers=("</tool_call>",),
    render_calls=lambda calls: f"<|tool_call|>{render_list(calls)}",
)
GRANITE_20B_FC = _json_dialect("granite_20b_fc", ("<function_call>",), models=("granite-20b",))
PHI4MINI = _json_dialect(
    "phi4mini",
    ("functools[",),
    models=("phi-4-mini", "phi4-mini"),
    render_calls=lambda calls: f"functools{render_list(calls)}",
)
INTERNLM2 = _json_dialect(
    "internlm2",
    ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"),
    "<|action_end|>",
    models=("internlm",),
    render_calls=call_renderer(
        lambda call: f"<|action_start|><|plugin|>\n{render_object(call, 'parameters')}<|action_end|>"
    ),
)
GIGACHAT3 = _json_dialect(
    "gigachat3",
    ("<|message_sep|>\n\nfunction call<|role_sep|>", "<|function_call|>"),
    models=("gigachat",),
)
COHERE_COMMAND = _json_dialect(
    "cohere_command",
    ("<|START_ACTION|>",),
    "<|END_ACTION|>",
    models=("command-r", "command-a"),
    render_calls=_render_action,
    render_results=_render_action_results,
)

DIALECTS = (
    HERMES,
    LONGCAT,
    TOOLS_TAG,
    HUNYUAN_A13B,
    GRANITE,
    GRANITE_20B_FC,
    PHI4MINI,
    INTERNLM2,
    GIGACHAT3,
    COHERE_COMMAND,
)
