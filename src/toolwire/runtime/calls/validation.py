"""Parse and validate tool arguments against JSON Schemas and grammars.

1. Arguments are parsed strictly: integers of any size, no NaN, no duplicate names. The user must approve exactly what
   runs.
2. Validation takes bounded time and never fetches a remote `$ref`. A few lines of schema can otherwise take forever to
   check, so the worst-case cost is computed first.
3. Argument repair is optional and covers only unambiguous errors: JSON inside a string where an object or array is
   expected, `10.0` for an integer, trailing commas, and Python spelling (single quotes, `True`, `False`, `None`).
   Repairs apply only if they make the arguments valid, and each is reported. Truncated arguments are never repaired.
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
from toolwire.installation import require_extra
from toolwire.runtime.calls.plain_schemas import is_plainly_valid
from toolwire.runtime.tool import Arguments, Tool

MAX_REFERENCE_DEPTH = 64
MAX_VALIDATION_COST = 2_000_000
"""Maximum schema nodes that one validation may visit; takes well below a second."""


def nesting_depth(tree: Any) -> int:
    """Return the depth of nested objects and arrays."""
    max_depth, stack = 0, [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        max_depth = max(max_depth, depth)
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        stack += [(child, depth + 1) for child in children]
    return max_depth


def validation_cost(schema: Any) -> tuple[float, int]:
    """Return the cost of validating with a schema, as two numbers.

    They are the number of schema nodes with local references expanded, and the number of recursive references.
    """
    target_costs: dict[str, tuple[float, int]] = {}

    def node_cost(node: Any, ancestors: tuple[str, ...]) -> tuple[float, int]:
        """Return the cost of a schema node; `ancestors` are the references that led to it."""
        children = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
        costs = [node_cost(child, ancestors) for child in children if isinstance(child, dict | list)]
        if isinstance(node, dict):
            references = (node.get(key) for key in ("$ref", "$dynamicRef", "$recursiveRef"))
            costs += [reference_cost(target, ancestors) for target in references if isinstance(target, str)]
        return 1 + sum(nodes for nodes, _ in costs), sum(recursions for _, recursions in costs)

    def reference_cost(target: str, ancestors: tuple[str, ...]) -> tuple[float, int]:
        """Return the cost of the schema at a local reference, computed once."""
        if target in ancestors:
            return 1, 1
        if len(ancestors) > MAX_REFERENCE_DEPTH:
            return float("inf"), 0
        if target not in target_costs:
            target_costs[target] = node_cost(_resolve_pointer(schema, target), (*ancestors, target))
        return target_costs[target]

    try:
        return node_cost(schema, ("#",))
    except RecursionError:
        return float("inf"), 0


def is_too_costly(cost: tuple[float, int], value: Any) -> bool:
    """Return True if checking the value may exceed `MAX_VALIDATION_COST`; `cost` is that of `validation_cost`.

    In the worst case, every level of the value is checked against every recursive reference. With a single one, no
    level is checked twice.
    """
    nodes, recursions = cost
    return recursions > 1 and nodes * float(recursions) ** min(nesting_depth(value), 100) > MAX_VALIDATION_COST


def _resolve_pointer(root: Any, target: str) -> Any:
    """Return the node at a local reference such as `#/$defs/Item`; None if it does not exist."""
    node = root
    if not target.startswith("#"):
        return None
    for segment in target[1:].split("/")[1:]:
        key = segment.replace("~1", "/").replace("~0", "~")
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
    """Return a message why the text does not match a Lark or regex grammar; None if it does."""
    data = text.encode("utf-8", "replace")
    if len(data) > _MAX_TEXT_BYTES:
        return f"longer than {_MAX_TEXT_BYTES} bytes"
    if grammar.syntax == "regex":
        return _regex_error(grammar.definition, text)
    tokenizer, matcher = _lark_matcher(grammar.definition)
    if matcher.is_error():
        return f"invalid grammar: {matcher.get_error()[:200]}"
    matcher = matcher.deep_copy()
    tokens = tokenizer.tokenize_bytes(data)
    matched = matcher.try_consume_tokens(tokens)
    if matched < len(tokens):
        excerpt = data[matched : matched + _EXCERPT_LENGTH].decode("utf-8", "replace")
        return f"unexpected {excerpt!r} at byte {matched}"
    if not matcher.is_accepting():
        return "unexpected end of input"
    return None


@lru_cache(maxsize=256)
def _lark_matcher(definition: str) -> tuple[Any, Any]:
    """Compile a Lark grammar; returns the byte tokenizer and the matcher."""
    with require_extra("grammars", "checking a Lark grammar"):
        import llguidance  # noqa: PLC0415 - only grammar tools need it

    tokenizer = llguidance.LLTokenizer("byte")
    limits = llguidance.LLParserLimits(step_lexer_fuel=200_000, initial_lexer_fuel=1_000_000, max_grammar_size=500_000)
    grammar = llguidance.LLMatcher.grammar_from_lark(definition)
    return tokenizer, llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)


def _regex_error(definition: str, text: str) -> str | None:
    """Return a message why the text does not match a regex, checked by RE2 in linear time; None if it does."""
    import re2  # noqa: PLC0415 - only grammar tools need it

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 * 1024 * 1024
    try:
        match = re2.compile(definition, options).fullmatch(text)
    except re2.error as error:
        return f"invalid grammar: {error}"
    return None if match is not None else "the text does not match the pattern"


_MAX_REPAIR_DEPTH = 64


def repair_arguments(
    value: Any, schema: dict[str, Any], is_valid: Callable[[Any], bool]
) -> tuple[Any, tuple[str, ...]]:
    """Repair arguments so that `is_valid` accepts them; return them with a note on each repair.

    The value is returned unchanged if repairing does not make it valid.
    """
    repair = _ArgumentRepair(schema)
    repaired = repair.repair_value(value, schema)
    if not repair.notes or not is_valid(repaired):
        return value, ()
    return repaired, tuple(repair.notes)


_REPAIRABLE_TOKEN = re.compile(
    # An unterminated string matches to the end of the text: searching for its quote again would be quadratic.
    r"""(?P<string>"(?:\\.|[^"\\])*"?)"""
    r"""|(?P<quoted>'(?:\\.|[^'\\])*'?)"""
    r"""|(?P<comma>,(?=\s*[}\]]))"""
    r"""|(?P<word>\b(?:True|False|None)\b)""",
    re.DOTALL,
)
_PYTHON_LITERALS = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = re.compile(r"""\\(.)|(")""", re.DOTALL)


def repair_json(text: str) -> tuple[str, tuple[str, ...]]:
    """Rewrite Python-style or trailing-comma text as JSON; return it with a note on each repair."""
    notes = dict[str, None]()

    def repair_token(token: re.Match[str]) -> str:
        """Return the JSON for a quotation, trailing comma or Python literal, and note the repair."""
        match token.lastgroup:
            case "quoted" if len(token[0]) > 1 and token[0].endswith("'"):
                notes["replaced single quotes with double quotes"] = None
                return f'"{_ESCAPE.sub(_requote, token[0][1:-1])}"'
            case "comma":
                notes["removed a trailing comma"] = None
                return ""
            case "word":
                notes[f"replaced {token[0]} with {_PYTHON_LITERALS[token[0]]}"] = None
                return _PYTHON_LITERALS[token[0]]
            case _:
                return token[0]

    return _REPAIRABLE_TOKEN.sub(repair_token, text), tuple(f"/: {note}" for note in notes)


def _requote(match: re.Match[str]) -> str:
    """Convert an escape to JSON: `\\'` loses its backslash, and a double quote gains one."""
    if match[2]:
        return '\\"'
    return "'" if match[1] == "'" else match[0]


class _ArgumentRepair:
    """Repairs parsed arguments by their schema, and notes each repair."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.notes: list[str] = []
        self._root = root

    def repair_value(self, value: Any, schema: Any, path: tuple[str, ...] = ()) -> Any:
        """Return the value with JSON strings decoded and whole floats converted where the schema requires it."""
        schema = _resolve_reference(schema, self._root)
        if not isinstance(schema, dict) or len(path) > _MAX_REPAIR_DEPTH:
            return value
        types = _schema_types(schema)
        if isinstance(value, str) and types & {"object", "array"} and "string" not in types:
            value = self._decode_string(value, types, path)
        if isinstance(value, float) and "integer" in types and "number" not in types and value.is_integer():
            self._note(path, f"converted {value!r} to an integer")
            return int(value)
        if isinstance(value, dict):
            properties = schema.get("properties")
            known = properties if isinstance(properties, dict) else {}
            others = schema.get("additionalProperties")
            return {
                name: self.repair_value(member, known.get(name, others), (*path, name))
                for name, member in value.items()
            }
        if isinstance(value, list):
            items = schema.get("items")
            return [self.repair_value(item, items, (*path, str(index))) for index, item in enumerate(value)]
        return value

    def _decode_string(self, value: str, types: set[str], path: tuple[str, ...]) -> Any:
        """Decode a string that holds the JSON object or array which the schema requires."""
        try:
            decoded = json.loads(value)
        except (ValueError, RecursionError):
            return value
        json_type = "object" if isinstance(decoded, dict) else "array" if isinstance(decoded, list) else ""
        if json_type not in types:
            return value
        self._note(path, f"decoded a JSON string to an {json_type}")
        return decoded

    def _note(self, path: tuple[str, ...], note: str) -> None:
        """Note a repair at a path in the arguments, for the record."""
        self.notes.append(f"/{'/'.join(path)}: {note}")


def _schema_types(schema: dict[str, Any]) -> set[str]:
    """Return the types that a schema names; empty if it names none."""
    types = schema.get("type")
    return {types} if isinstance(types, str) else {name for name in types or () if isinstance(name, str)}


def _resolve_reference(schema: Any, root: Any) -> Any:
    """Follow local `$ref`s to a schema without one; None if there is no end."""
    for _ in range(_MAX_REPAIR_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        target = root
        for segment in reference[2:].split("/"):
            name = segment.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, dict) else None
        schema = target
    return None


_MAX_ERRORS = 10
_MAX_MESSAGE_LENGTH = 300
_MAX_COMPILED = 512  # about 8 MB


class InvalidSchema(ToolwireError):
    """A tool has an invalid JSON Schema."""


class CallValidationError(Exception):
    """Arguments or output of a call are invalid; the message is for the model."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_arguments(tool: Tool, text: str, *, repair: bool = False) -> tuple[Arguments, tuple[str, ...]]:
    """Parse and validate the argument text of a call; return the arguments and a note on each repair.

    Empty text means no arguments.
    """
    if tool.grammar is not None:
        if not tool.validates_input and (error := grammar_error(tool.grammar, text)) is not None:
            raise CallValidationError(f"the input of {tool.name} does not match its grammar: {error}", "grammar")
        return text, ()
    repairs: tuple[str, ...] = ()
    if repair:
        text, repairs = _repair_text(tool, text)
    value = parse_input(tool, text)
    if repair:
        value, value_repairs = repair_arguments(
            value, tool.parameters, lambda candidate: not _schema_errors(tool.parameters, candidate)
        )
        repairs += value_repairs
    if errors := _schema_errors(tool.parameters, value):
        raise CallValidationError(_format_errors(tool, errors), "schema")
    return value, repairs


def _repair_text(tool: Tool, text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text repaired to valid JSON, and a note on each repair.

    The text is unchanged if it is valid already or can't be repaired.
    """
    try:
        parse_input(tool, text)
    except CallValidationError:
        repaired, notes = repair_json(text)
        with suppress(CallValidationError):
            parse_input(tool, repaired)
            return repaired, notes
    return text, ()


def is_truncated(text: str) -> bool:
    """Return whether the argument text of an unfinished call may have been cut off.

    It is False only for closed JSON with an error before its end. Even valid JSON may lack something.
    """
    text = text.rstrip()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        is_closed = text.endswith(("}", "]")) and not error.msg.startswith("Unterminated string")
        return error.pos >= len(text) or not is_closed
    except RecursionError:
        pass
    return True


def parse_input(tool: Tool, text: str) -> Arguments:
    """Parse argument text without validating it against the schema."""
    return text if tool.grammar is not None else _parse_json(tool.name, text if text.strip() else "{}")


def check_output(tool: Tool, value: Any) -> None:
    """Validate structured output against the tool's output schema.

    Raises `CallValidationError` if the output does not match.
    """
    if tool.output_schema is not None and (errors := _schema_errors(tool.output_schema, value)):
        lines = "\n".join(_format_error(tool, error, parameters=False) for error in errors)
        raise CallValidationError(
            f"the output of {tool.name} does not match its output schema:\n{lines}", "output_schema"
        )


def check_schema(tool: Tool) -> None:
    """Check that the schemas of a tool are valid.

    Raises `InvalidSchema` if one of them is not.
    """
    for schema in (tool.parameters, tool.output_schema):
        if schema is not None:
            try:
                _validator(msgspec.json.encode(schema))
            except ValueError as error:
                raise InvalidSchema(f"tool {tool.name!r} has an invalid schema: {error}") from None


def _parse_json(name: str, text: str) -> Any:
    """Parse JSON strictly; `name` is the tool named in the `CallValidationError` for invalid text."""
    try:
        return _STRICT_DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CallValidationError(f"the arguments of {name} are not valid JSON: {reason}", "json") from None


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from its members (`object_pairs_hook`); raises for duplicate names."""
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate name {next(name for name in names if names.count(name) > 1)!r}")
    return members


def _reject_constant(word: str) -> NoReturn:
    """Raise for `NaN` and `Infinity` (`parse_constant`), which are not JSON."""
    raise ValueError(f"{word} is not a JSON value")


_STRICT_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicate_names, parse_constant=_reject_constant)


@lru_cache(maxsize=_MAX_COMPILED)
def _validator(schema: bytes) -> Any:
    """Compile a JSON Schema to a validator; it never fetches references, and its patterns take bounded time."""
    import jsonschema_rs  # noqa: PLC0415 - only the runtime needs it

    pattern_options = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=1_000_000)
    return jsonschema_rs.validator_for(json.loads(schema), offline=True, pattern_options=pattern_options)


@lru_cache(maxsize=_MAX_COMPILED)
def _cached_cost(schema: bytes) -> tuple[float, int]:
    """Return the `validation_cost` of an encoded schema, computed once."""
    return validation_cost(json.loads(schema))


def describe_schema_errors(schema: bytes, value: Any) -> list[str]:
    """Return a line for each of the first validation errors of a value; empty if it is valid.

    For a value that is not plainly valid, raises `ValueError` if the schema itself is invalid, and
    `CallValidationError` if the check would take too long.
    """
    if is_plainly_valid(msgspec.json.decode(schema), value):
        return []
    return [_describe_error(error) for error in _find_errors(schema, value)]


def _schema_errors(schema: dict[str, Any], value: Any) -> list[Any]:
    """Return the first validation errors of a value; empty if it is valid."""
    return _find_errors(msgspec.json.encode(schema), value)


def _find_errors(encoded: bytes, value: Any) -> list[Any]:
    """Return the first errors of a value by an encoded schema."""
    if is_too_costly(_cached_cost(encoded), value):
        raise CallValidationError("the value is nested too deeply to validate against its schema", "schema")
    validator = _validator(encoded)
    try:
        if validator.is_valid(value):
            return []
        return [error for error, _ in zip(validator.iter_errors(value), range(_MAX_ERRORS), strict=False)]
    except UnicodeEncodeError:
        message = "a member name contains half of a surrogate pair, which is not valid Unicode; nothing was run"
        raise CallValidationError(message, "schema") from None


def _format_errors(tool: Tool, errors: Sequence[Any]) -> str:
    """Build the message to the model for invalid arguments, with a line for each error."""
    lines = "\n".join(_format_error(tool, error, parameters=True) for error in errors)
    return f"the arguments of {tool.name} are invalid; nothing was run:\n{lines}"


def _format_error(tool: Tool, error: Any, *, parameters: bool) -> str:
    """Format one error as path, message and schema keyword, with the allowed names for an unknown argument.

    `parameters` is True for errors in arguments, and False for errors in the output.
    """
    hint = ""
    properties = tool.parameters.get("properties")
    is_unknown = error.kind.name == "additionalProperties" and not list(error.instance_path)
    if parameters and is_unknown and isinstance(properties, dict):
        hint = f"; allowed: {', '.join(properties) or 'none'}"
    return _describe_error(error) + hint


def _describe_error(error: Any) -> str:
    """Format one error as path, message and schema keyword."""
    path = "".join(f"/{segment}" for segment in error.instance_path) or "/"
    message = error.message
    if len(message) > _MAX_MESSAGE_LENGTH:
        message = message[:_MAX_MESSAGE_LENGTH] + "..."
    return f"- {path}: {message} ({error.kind.name})"


def unknown_tool_message(name: str, tool_names: Sequence[str]) -> str:
    """Build the message to the model for a call of an unknown tool, with a suggestion if a name is close."""
    matches = difflib.get_close_matches(name[:200], tool_names, n=1)
    suggestion = f" Did you mean {matches[0]}?" if matches else ""
    listed = ", ".join(tool_names[:50]) + (", ..." if len(tool_names) > 50 else "")
    return f"unknown tool {name[:200]!r}; nothing was run.{suggestion} Available tools: {listed or 'none'}"
