"""What it takes to check a value against a schema, at worst: few lines of schema can mean more than any time.

Grammar tools: whether a text is one that a Lark or a regular grammar describes, and where it stops being one.

Repairs of arguments, for those who ask for them: what a model surely meant, and nothing that has to be guessed.

JSON within a string where the schema wants an object or a list, `10.0` where it wants an integer, commas before a
closing bracket, and what Python writes in place of JSON: single quotes, True, False and None. A repair holds only if
the whole is valid after it, and each one is reported. Truncated arguments never come here.

What a call was given, held against what its tool asks for: a value to run with, or a text that the model can act on.

1. Arguments are read exactly: integers of any size, no NaN, and no name twice, since what a person approved and what
   runs must be the same.
2. Schemas are checked without ever fetching a reference, in bounded time.
"""

import difflib
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import Grammar
from toolwire.runtime.tool import Arguments, Tool

MAX_REFERENCE_DEPTH = 64
MAX_VALIDATION_COST = 2_000_000
"""Places that one check may have to look at: well below a second."""


def nesting_depth(tree: Any) -> int:
    deepest, waiting = 0, [(tree, 1)]
    while waiting:
        node, level = waiting.pop()
        deepest = max(deepest, level)
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        waiting += [(one, level + 1) for one in inner]
    return deepest


def validation_cost(schema: Any) -> tuple[float, int]:
    """How many places there are with every local reference followed, and how many references lead back."""
    known: dict[str, tuple[float, int]] = {}

    def of(node: Any, followed: tuple[str, ...]) -> tuple[float, int]:
        inner = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
        found = [of(one, followed) for one in inner if isinstance(one, dict | list)]
        if isinstance(node, dict):
            references = (node.get(key) for key in ("$ref", "$dynamicRef", "$recursiveRef"))
            found += [referred(one, followed) for one in references if isinstance(one, str)]
        return 1 + sum(places for places, _ in found), sum(back for _, back in found)

    def referred(target: str, followed: tuple[str, ...]) -> tuple[float, int]:
        if target in followed:
            return 1, 1
        if len(followed) > MAX_REFERENCE_DEPTH:
            return float("inf"), 0
        if target not in known:
            known[target] = of(_resolve_pointer(schema, target), (*followed, target))
        return known[target]

    try:
        return of(schema, ("#",))
    except RecursionError:
        return float("inf"), 0


def is_too_costly(cost: tuple[float, int], value: Any) -> bool:
    """At worst each level of the value meets every reference that leads back. With one, no level is met twice."""
    places, back = cost
    return back > 1 and places * float(back) ** min(nesting_depth(value), 100) > MAX_VALIDATION_COST


def _resolve_pointer(root: Any, target: str) -> Any:
    node = root
    if not target.startswith("#"):
        return None
    for step in target[1:].split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


_MAX_TEXT_BYTES = 1_000_000
_EXCERPT_LENGTH = 40


def grammar_error(grammar: Grammar, text: str) -> str | None:
    """Why the text does not fit; None if it does."""
    data = text.encode("utf-8", "replace")
    if len(data) > _MAX_TEXT_BYTES:
        return f"it is longer than {_MAX_TEXT_BYTES} bytes"
    if grammar.syntax == "regex":
        return _regex_error(grammar.definition, text)
    tokenizer, matcher = _lark_matcher(grammar.definition)
    if matcher.is_error():
        return f"the grammar itself can't be read: {matcher.get_error()[:200]}"
    matcher = matcher.deep_copy()
    tokens = tokenizer.tokenize_bytes(data)
    fits = matcher.try_consume_tokens(tokens)
    if fits < len(tokens):
        return f"at byte {fits}, {data[fits : fits + _EXCERPT_LENGTH].decode('utf-8', 'replace')!r} is not expected"
    if not matcher.is_accepting():
        return "it ends too early"
    return None


@lru_cache(maxsize=256)
def _lark_matcher(definition: str) -> tuple[Any, Any]:
    import llguidance  # noqa: PLC0415 - only who runs grammar tools needs it

    tokenizer = llguidance.LLTokenizer("byte")
    limits = llguidance.LLParserLimits(step_lexer_fuel=200_000, initial_lexer_fuel=1_000_000, max_grammar_size=500_000)
    grammar = llguidance.LLMatcher.grammar_from_lark(definition)
    return tokenizer, llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)


def _regex_error(definition: str, text: str) -> str | None:
    import re2  # noqa: PLC0415 - as above

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 * 1024 * 1024
    try:
        found = re2.compile(definition, options).fullmatch(text)
    except re2.error as error:
        return f"the grammar itself can't be read: {error}"
    return None if found is not None else "the whole text does not match the pattern"


_MAX_REPAIR_DEPTH = 64


def repair_arguments(
    value: Any, schema: dict[str, Any], is_valid: Callable[[Any], bool]
) -> tuple[Any, tuple[str, ...]]:
    """The value as it was meant, and what was done to it: nothing, if that does not make it valid."""
    mending = _ArgumentRepair(schema)
    mended = mending.repair_value(value, schema)
    if not mending.notes or not is_valid(mended):
        return value, ()
    return mended, tuple(mending.notes)


_REPAIRABLE_TOKEN = re.compile(
    # A string without an end is taken to the end of the text: looking for its quote once more would be quadratic.
    r"""(?P<string>"(?:\\.|[^"\\])*"?)"""
    r"""|(?P<quoted>'(?:\\.|[^'\\])*'?)"""
    r"""|(?P<comma>,(?=\s*[}\]]))"""
    r"""|(?P<word>\b(?:True|False|None)\b)""",
    re.DOTALL,
)
_PYTHON_LITERALS = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = re.compile(r"""\\(.)|(")""", re.DOTALL)


def repair_json(text: str) -> tuple[str, tuple[str, ...]]:
    """Rewrite text that is almost JSON, and list what was done to it."""
    notes = dict[str, None]()

    def mend(found: re.Match[str]) -> str:
        match found.lastgroup:
            case "quoted" if len(found[0]) > 1 and found[0].endswith("'"):
                notes["a string in single quotes was read as a string"] = None
                return f'"{_ESCAPE.sub(_requote, found[0][1:-1])}"'
            case "comma":
                notes["a comma before a closing bracket was left out"] = None
                return ""
            case "word":
                notes[f"{found[0]} was read as {_PYTHON_LITERALS[found[0]]}"] = None
                return _PYTHON_LITERALS[found[0]]
            case _:
                return found[0]

    return _REPAIRABLE_TOKEN.sub(mend, text), tuple(f"/: {note}" for note in notes)


def _requote(match: re.Match[str]) -> str:
    """An escape as JSON has it: `\\'` needs none there, and a double quote does."""
    if match[2]:
        return '\\"'
    return "'" if match[1] == "'" else match[0]


class _ArgumentRepair:
    def __init__(self, root: dict[str, Any]) -> None:
        self.notes: list[str] = []
        self._root = root

    def repair_value(self, value: Any, schema: Any, path: tuple[str, ...] = ()) -> Any:
        schema = _resolve_reference(schema, self._root)
        if not isinstance(schema, dict) or len(path) > _MAX_REPAIR_DEPTH:
            return value
        kinds = _schema_types(schema)
        if isinstance(value, str) and kinds & {"object", "array"} and "string" not in kinds:
            value = self._decode_string(value, kinds, path)
        if isinstance(value, float) and "integer" in kinds and "number" not in kinds and value.is_integer():
            self._note(path, f"{value!r} was read as the integer that it is")
            return int(value)
        if isinstance(value, dict):
            inner = schema.get("properties")
            known = inner if isinstance(inner, dict) else {}
            others = schema.get("additionalProperties")
            return {name: self.repair_value(one, known.get(name, others), (*path, name)) for name, one in value.items()}
        if isinstance(value, list):
            items = schema.get("items")
            return [self.repair_value(one, items, (*path, str(place))) for place, one in enumerate(value)]
        return value

    def _decode_string(self, value: str, types: set[str], path: tuple[str, ...]) -> Any:
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return value
        kind = "object" if isinstance(found, dict) else "array" if isinstance(found, list) else ""
        if kind not in types:
            return value
        self._note(path, f"JSON within a string was read as the {kind} that it is")
        return found

    def _note(self, path: tuple[str, ...], note: str) -> None:
        self.notes.append(f"/{'/'.join(path)}: {note}")


def _schema_types(schema: dict[str, Any]) -> set[str]:
    kind = schema.get("type")
    return {kind} if isinstance(kind, str) else {one for one in kind or () if isinstance(one, str)}


def _resolve_reference(schema: Any, root: Any) -> Any:
    """What a local reference stands for."""
    for _ in range(_MAX_REPAIR_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found = root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        schema = found
    return None


_MAX_ERRORS = 10
_MAX_MESSAGE_LENGTH = 300


class InvalidSchema(ToolwireError):
    """A tool's schema can't be used."""


class CallValidationError(Exception):
    """The call can't be run as it is; the message is for the model."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_arguments(tool: Tool, text: str, *, repair: bool = False) -> tuple[Arguments, tuple[str, ...]]:
    """The arguments, and what was repaired in them. Nothing at all means no arguments."""
    if tool.grammar is not None:
        if (error := grammar_error(tool.grammar, text)) is not None:
            raise CallValidationError(f"the input of {tool.name} does not fit its grammar: {error}", "grammar")
        return text, ()
    repairs: tuple[str, ...] = ()
    if repair:
        text, repairs = _repair_text(tool, text)
    value = parse_input(tool, text)
    if repair:
        value, more = repair_arguments(value, tool.parameters, lambda found: not _schema_errors(tool.parameters, found))
        repairs += more
    if errors := _schema_errors(tool.parameters, value):
        raise CallValidationError(_format_errors(tool, errors), "schema")
    return value, repairs


def _repair_text(tool: Tool, text: str) -> tuple[str, tuple[str, ...]]:
    """The text as valid JSON, if it is almost that; else the text itself, whose fault is then reported."""
    try:
        parse_input(tool, text)
    except CallValidationError:
        mended, notes = repair_json(text)
        with suppress(CallValidationError):
            parse_input(tool, mended)
            return mended, notes
    return text, ()


def is_truncated(text: str) -> bool:
    """Whether nothing in a text speaks against its having been cut off: else it is invalid where it is wrong."""
    text = text.rstrip()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        ends = text.endswith(("}", "]")) and not error.msg.startswith("Unterminated string")
        return error.pos >= len(text) or not ends
    except RecursionError:
        pass
    return True


def parse_input(tool: Tool, text: str) -> Arguments:
    """The arguments that a text stands for, which was valid when it was read."""
    return text if tool.grammar is not None else _parse_json(tool.name, text if text.strip() else "{}")


def check_output(tool: Tool, value: Any) -> None:
    """What a tool promises of its result."""
    if tool.output_schema is not None and (errors := _schema_errors(tool.output_schema, value)):
        lines = "\n".join(_format_error(tool, error, parameters=False) for error in errors)
        raise CallValidationError(
            f"{tool.name} gave what its own output schema does not allow:\n{lines}", "output_schema"
        )


def check_schema(tool: Tool) -> None:
    """A tool whose schema is wrong can't be offered."""
    for schema in (tool.parameters, tool.output_schema):
        if schema is not None:
            try:
                _validator(msgspec.json.encode(schema))
            except ValueError as error:
                raise InvalidSchema(f"the schema of the tool {tool.name!r} can't be used: {error}") from None


def _parse_json(name: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_reject_duplicate_names, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CallValidationError(f"the arguments of {name} are not valid JSON: {why}", "json") from None


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON value")


@lru_cache(maxsize=4096)
def _validator(schema: bytes) -> Any:
    import jsonschema_rs  # noqa: PLC0415 - only who runs tools needs it

    bounds = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=1_000_000)
    return jsonschema_rs.validator_for(json.loads(schema), offline=True, pattern_options=bounds)


@lru_cache(maxsize=4096)
def _cached_cost(schema: bytes) -> tuple[float, int]:
    return validation_cost(json.loads(schema))


def _schema_errors(schema: dict[str, Any], value: Any) -> list[Any]:
    encoded = msgspec.json.encode(schema)
    if is_too_costly(_cached_cost(encoded), value):
        raise CallValidationError(
            "the value is nested so deeply that its schema can't be checked in any useful time", "schema"
        )
    validator = _validator(encoded)
    if validator.is_valid(value):
        return []
    return [error for error, _ in zip(validator.iter_errors(value), range(_MAX_ERRORS), strict=False)]


def _format_errors(tool: Tool, errors: Sequence[Any]) -> str:
    lines = "\n".join(_format_error(tool, error, parameters=True) for error in errors)
    return f"the arguments of {tool.name} are not valid; nothing was run:\n{lines}"


def _format_error(tool: Tool, error: Any, *, parameters: bool) -> str:
    """Where, what, and by which rule."""
    path = "".join(f"/{step}" for step in error.instance_path) or "/"
    rule = error.kind.name
    said = error.message if len(error.message) <= _MAX_MESSAGE_LENGTH else error.message[:_MAX_MESSAGE_LENGTH] + "..."
    hint = ""
    known = tool.parameters.get("properties")
    if parameters and path == "/" and rule == "additionalProperties" and isinstance(known, dict):
        hint = f"; it takes {', '.join(known) or 'none'}"
    return f"- {path}: {said} ({rule}){hint}"


def unknown_tool_message(name: str, tool_names: Sequence[str]) -> str:
    """What a model is told that called what is not there."""
    close = difflib.get_close_matches(name[:200], tool_names, n=1)
    meant = f" Did you mean {close[0]}?" if close else ""
    listed = ", ".join(tool_names[:50]) + (", ..." if len(tool_names) > 50 else "")
    return f"there is no tool {name[:200]!r}; nothing was run.{meant} The tools are: {listed or 'none'}"
