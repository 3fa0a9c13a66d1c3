"""Gemini's tool declarations, to canonical and back.

A tool on the wire is a bag: functions in a list, and each of Google's own tools under its name. Canonically each is a
tool of its own, and its form says which bag it was in.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import (
    FreeformTool,
    FunctionTool,
    NativeTool,
    Tool,
    ToolGroup,
)
from toolwire.codec.connectors import connector
from toolwire.codec.fields import Reader, escape, told
from toolwire.codec.hosted import Spelling as HostedSpelling
from toolwire.codec.hosted import choosable, decode_hosted, encode_hosted, is_native, without_native
from toolwire.codec.kept import given, joined, known
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.schema.fit import fitted
from toolwire.codec.tools import (
    PlacedTool,
    ToolPlan,
    flattened,
    lowered_description,
    lowered_schema,
    usable_callers,
)
from toolwire.protocols.gemini.parts.calls import is_early
from toolwire.protocols.gemini.parts.spelling import Spelling, extra, write
from toolwire.protocols.gemini.wire import FAMILY, DeclarationShape
from toolwire.protocols.google import OPENAPI, is_validated
from toolwire.protocols.google_servers import decode_older, encode_older
from toolwire.protocols.google_tools import LISTED, NEWER, camel, older, snake

from .schema import decode_schema, dialect_of

_BAG = "gemini:bag:"
_ONE_BAG = "gemini:tools:object"
_LISTED = "gemini:tool:listed"
_OPENAPI = "gemini:schema:openapi"
_OPENAPI_RESPONSE = "gemini:schema:openapi-response"
_FUNCTIONS = ("functionDeclarations", "function_declarations")

HOSTED = HostedSpelling(
    family=FAMILY,
    words={
        "web_search": ("googleSearch", "googleSearchRetrieval"),
        "web_fetch": ("urlContext",),
        "code_execution": ("codeExecution",),
    },
    options={},
)
# Only Vertex knows them, so that they are read but not written.
_READ = {
    name: msgspec.structs.replace(HOSTED, options={"web_search": {"blocked_domains": name}})
    for name in ("excludeDomains", "exclude_domains")
}

_read_declaration = Reader[DeclarationShape](DeclarationShape, FAMILY).read
_elements = msgspec.json.Decoder(list[Raw]).decode
_members = msgspec.json.Decoder(dict[str, Raw]).decode


class NamePlan(ToolPlan):
    """Names here start with a letter or an underscore."""

    def _suffixed(self, readable: str, key: tuple[str | None, str], tries: int = 0) -> str:
        made = super()._suffixed(readable, key, tries)
        if made[0].isalpha() or made[0] == "_":
            return made
        return super()._suffixed("_" + readable, key, tries)


# ---- decode


def decode_tools(tools: Any, place: str) -> tuple[tuple[Tool, ...] | None, tuple[str, ...]]:
    """The tools, and the form of the list of bags."""
    if tools is UNSET:
        return None, ()
    found: list[Tool] = []
    form: list[str] = []
    bags = [tools] if isinstance(tools, dict) else tools
    if isinstance(tools, dict):
        form.append(_ONE_BAG)
    for index, bag in enumerate(bags):
        path = f"/{place}" if isinstance(tools, dict) else f"/{place}/{index}"
        for name, value in bag.items():
            if name in _FUNCTIONS:
                _decode_functions(value, f"{path}/{name}", index, name, found, form)
            elif bytes(value) == b"null":
                form.append(f"{_BAG}{index}:null:{name}")
            elif bytes(value) == b"[]":
                form.append(f"{_BAG}{index}:empty:{name}")
            elif bytes(value)[:1] == b"[":
                places = [(one, f"{path}/{escape(name)}/{number}") for number, one in enumerate(_elements(value))]
                found += [_decode_native(name, one, at, index, _LISTED) for one, at in places]
            else:
                found.append(_decode_native(name, value, f"{path}/{escape(name)}", index))
        if not bag:
            form.append(f"{_BAG}{index}")
    return tuple(found), tuple(form)


def _decode_functions(  # noqa: PLR0917
    value: Raw, path: str, bag: int, name: str, found: list[Tool], form: list[str]
) -> None:
    try:
        declarations = _elements(value)
    except msgspec.DecodeError:
        if bytes(value) != b"null":
            raise DecodeError(FAMILY, path, "an array", told(value)) from None
        form.append(f"{_BAG}{bag}:null:{name}")
        return
    if not declarations:
        form.append(f"{_BAG}{bag}:empty:{name}")
    for index, raw in enumerate(declarations):
        found.append(_decode_function(raw, f"{path}/{index}", f"{_BAG}{bag}:{name}"))


def _decode_function(raw: Raw, path: str, bag: str) -> FunctionTool:
    shape = _read_declaration(raw, path)
    name, about, schema = shape.name, shape.description, shape.parameters_json_schema
    if schema is not UNSET and shape == DeclarationShape(name=name, description=about, parameters_json_schema=schema):
        return FunctionTool(name=name, description=known(about), parameters=schema, at=path, form=(bag,))
    spelling = Spelling(path)
    spelling.read(shape)
    form: list[str] = [bag]
    more: list[dict[str, Any]] = []
    parameters, output = known(shape.parameters_json_schema), known(shape.response_json_schema)
    names: dict[str, str] = {}
    if shape.parameters is not UNSET:
        if parameters is None:
            parameters, kept = decode_schema(shape.parameters, "parameters")
            form.append(_OPENAPI)
            more.append(kept)
            names["parameters"] = "parameters"
        else:
            more.append(extra("parameters", shape.parameters))
    if shape.response is not UNSET:
        if output is None:
            output, kept = decode_schema(shape.response, "response")
            more.append(kept)
            form.append(_OPENAPI_RESPONSE)
            names["output_schema"] = "response"
        else:
            more.append(extra("response", shape.response))
    waits = None
    if shape.behavior in ("BLOCKING", "NON_BLOCKING"):
        waits = shape.behavior == "NON_BLOCKING"
    elif shape.behavior is not UNSET:
        more.append(extra("behavior", shape.behavior))
    form += [f"gemini:name:{field}={wire}" for field, wire in names.items()]
    return FunctionTool(
        name=shape.name,
        description=known(shape.description),
        parameters=parameters,
        output_schema=output,
        asynchronous=waits,
        at=path,
        **joined(spelling.kept("FunctionTool", (shape, ""), form=tuple(form)), *more),
    )


def _decode_native(name: str, value: Raw, path: str, bag: int, *more: str) -> NativeTool:
    usual = camel(name)
    kind = HOSTED.kind(usual) or snake(usual)
    snaked = b'"exclude_domains"' in bytes(value)
    form = (f"{_BAG}{bag}:{name}", *more)
    executor: Any = "client" if usual == "computerUse" else "server"
    return NativeTool(
        protocol=FAMILY,
        kind=kind,
        name=name,
        body=value,
        executor=executor,
        at=path,
        form=form,
        hosted=decode_hosted(usual, value, _READ["exclude_domains" if snaked else "excludeDomains"]),
        server=decode_older(value, path) if usual == "mcpServers" else None,
    )


# ---- encode


def encode_tools(request: Request, plan: Plan) -> tuple[Any, dict[str, Any]]:
    """The tools, and what of `toolConfig` they need."""
    if plan.home:
        return (None if request.tools is None else _encode_own_bags(request, plan)), {}
    plan.request = request
    functions: list[Any] = []
    hosted: list[Any] = []
    computers: list[Any] = []
    config: dict[str, Any] = {}
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ToolGroup) and tool.description is not None:
            plan.report.dropped(("tools", index), "description", "the target has no groups of tools")
    placed_tools = list(choosable(request, plan))
    any_functions = any(not isinstance(placed.tool, NativeTool) for placed in placed_tools)
    validated = is_validated(request)
    for placed in placed_tools:
        tool = placed.tool
        if not isinstance(tool, NativeTool):
            functions.append(_encode_function(tool, placed.trail, plan, validated=validated))
        elif tool.protocol == FAMILY:
            computers.append({tool.name: tool.body})
        elif tool.protocol == NEWER and (own := older(tool, placed.trail, plan.report, config)) is not None:
            if not _clashes(placed, plan, beside=any_functions):
                _add_own(*own, hosted)
        elif is_native(tool, HOSTED):
            hosted += [one for one in _hosted(tool, placed, plan, beside=any_functions) if one not in hosted]
        elif (server := connector(tool)) is not None and server.allowed is None:
            if not _clashes(placed, plan, beside=any_functions):
                _add_own("mcpServers", encode_older(server, placed.trail, plan), hosted)
        else:
            without_native(placed, plan, connects=True)
    if functions and hosted:
        config["includeServerSideToolInvocations"] = True
    tools = [{"functionDeclarations": functions}] if functions else []
    return [*tools, *hosted, *computers] or None, config


def _clashes(placed: PlacedTool, plan: Plan, *, beside: bool) -> bool:
    """Whether the model takes none of its own tools since there are functions."""
    if beside and is_early(plan):
        plan.report.dropped(placed.trail, "", "the model can't have its own tools beside functions")
        return True
    return False


def _add_own(member: str, body: dict[str, Any], hosted: list[Any]) -> None:
    """A tool of Google's own in the bag for it."""
    bag = next((one for one in hosted if member in one), None)
    if member not in LISTED:
        hosted += [{member: body}] if bag is None else []
    elif bag is None:
        hosted.append({member: [body]})
    else:
        bag[member].append(body)


def _hosted(tool: NativeTool, placed: PlacedTool, plan: Plan, *, beside: bool) -> list[Any]:
    if _clashes(placed, plan, beside=beside):
        return []
    if beside:
        plan.report.approximated(placed.trail, "", "beside functions the model's own calls are shown, too")
    bounds = encode_hosted(tool, placed.trail, HOSTED, plan)
    return [{HOSTED.words[tool.hosted.kind][0]: bounds}] if tool.hosted is not None else []


def _encode_own_bags(request: Request, plan: Plan) -> Any:
    """Each tool in the bag that it came in; the ones that came from nowhere in bags of their own."""
    bags: dict[int, dict[str, Any]] = {}
    for token in request.form:
        if token.startswith(_BAG):
            number, _, said = token.removeprefix(_BAG).partition(":")
            bag = bags.setdefault(int(number), {})
            kind, _, name = said.partition(":")
            if name:
                bag[name] = None if kind == "null" else []
    for index, tool in enumerate(request.tools or ()):
        (placed,) = flattened(tool, ("tools", index))
        place = next((one for one in tool.form if one.startswith(_BAG)), f"{_BAG}0:functionDeclarations")
        number, _, name = place.removeprefix(_BAG).partition(":")
        bag = bags.setdefault(int(number), {})
        if _LISTED in tool.form and isinstance(placed.tool, NativeTool):
            bag.setdefault(name, []).append(placed.tool.body)
        elif isinstance(placed.tool, NativeTool):
            bag[name] = placed.tool.body
        else:
            bag.setdefault(name, []).append(_encode_function(placed.tool, placed.trail, plan))
    if _ONE_BAG in request.form and len(bags) == 1:
        return bags[min(bags)]
    return [bags[number] for number in sorted(bags)]


def _encode_function(tool: FunctionTool | FreeformTool, trail: Trail, plan: Plan, *, validated: bool = False) -> Any:
    name = tool.name
    if not plan.home:
        name = plan.tools.declare(tool, trail, plan.report)
        usable_callers(tool, trail, plan.report)
        _report_function(tool, trail, plan)
        if isinstance(tool, FunctionTool) and tool.strict and not validated:
            plan.report.dropped(trail, "strict", "the target is strict for all functions or for none")
    shape = DeclarationShape(name=name, description=given(tool.description))
    if isinstance(tool, FreeformTool):
        shape.description = lowered_description(tool)
        shape.parameters_json_schema = lowered_schema()
        return shape
    if plan.home:
        _encode_own_schemas(tool, shape)
    else:
        _encode_schemas(tool, trail, shape, plan)
    if tool.asynchronous is not None and plan.home:
        shape.behavior = "NON_BLOCKING" if tool.asynchronous else "BLOCKING"
    return write(shape, tool)


def _encode_schemas(tool: FunctionTool, trail: Trail, shape: DeclarationShape, plan: Plan) -> None:
    dialect = dialect_of(plan)
    for field, json_schema, openapi in (
        ("parameters", "parameters_json_schema", "parameters"),
        ("output_schema", "response_json_schema", "response"),
    ):
        if (schema := getattr(tool, field)) is not None:
            name = openapi if dialect is OPENAPI else json_schema
            setattr(shape, name, fitted(schema, dialect, plan.report, trail, field))


def _encode_own_schemas(tool: FunctionTool, shape: DeclarationShape) -> None:
    if tool.parameters is not None:
        if _OPENAPI not in tool.form:
            shape.parameters_json_schema = tool.parameters
        elif "parameters" not in (tool.extras or {}).get(FAMILY, {}):
            shape.parameters = tool.parameters
    if tool.output_schema is not None:
        if _OPENAPI_RESPONSE not in tool.form:
            shape.response_json_schema = tool.output_schema
        elif "response" not in (tool.extras or {}).get(FAMILY, {}):
            shape.response = tool.output_schema


def _report_function(tool: FunctionTool | FreeformTool, trail: Trail, plan: Plan) -> None:
    if tool.asynchronous:
        plan.report.dropped(trail, "asynchronous", "results can't come later here")
    if tool.defer:
        plan.report.approximated(trail, "defer", "without the other provider's search it is declared at once")
    if tool.cache is not None:
        plan.report.dropped((*trail, "cache"), "", "the target finds out by itself what to keep")
