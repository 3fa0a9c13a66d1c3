"""JSON between marks: Hermes, Qwen 2.5 and 3, and the dialects that differ from it only in their marks."""

from toolwire.translation.stages.tool_call_parsers.calls import ParsedCall, read_calls
from toolwire.translation.stages.tool_call_parsers.cursor import Cursor, Incomplete, Mismatch, Parse
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect


def _json_dialect(
    name: str,
    openers: tuple[str, ...],
    closer: str = "",
    *,
    lists_only: bool = False,
    models: tuple[str, ...] = (),
    closers: tuple[str, ...] = (),
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

    return Dialect(name, openers, parse, closers=((closer,) if closer else ()) + closers, models=models)


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


HERMES = _json_dialect("hermes", ("<tool_call>",), "</tool_call>", models=("hermes", "qwen2.5", "qwen3", "qwq"))
LONGCAT = _json_dialect("longcat", ("<longcat_tool_call>",), "</longcat_tool_call>", models=("longcat",))
TOOLS_TAG = _json_dialect("tools_tag", ("<tools>",), "</tools>")
HUNYUAN_A13B = _json_dialect(
    "hunyuan_a13b", ("<tool_calls>",), "</tool_calls>", lists_only=True, models=("hunyuan-a13b", "jamba")
)
GRANITE = _json_dialect(
    "granite",
    ("<|tool_call|>", "<tool_call>"),
    lists_only=True,
    models=("granite-3", "granite3"),
    closers=("</tool_call>",),
)
GRANITE_20B_FC = _json_dialect("granite_20b_fc", ("<function_call>",), models=("granite-20b",))
PHI4MINI = _json_dialect("phi4mini", ("functools[",), models=("phi-4-mini", "phi4-mini"))
INTERNLM2 = _json_dialect(
    "internlm2",
    ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"),
    "<|action_end|>",
    models=("internlm",),
)
GIGACHAT3 = _json_dialect(
    "gigachat3",
    ("<|message_sep|>\n\nfunction call<|role_sep|>", "<|function_call|>"),
    models=("gigachat",),
)
COHERE_COMMAND = _json_dialect(
    "cohere_command", ("<|START_ACTION|>",), "<|END_ACTION|>", models=("command-r", "command-a")
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
