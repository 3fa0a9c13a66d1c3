"""What is the same in both of Google's protocols: the schemas that its models take, and when calls are held to them."""

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, NativeTool
from toolwire.codec.check import words
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.tools import tools_in_force

_BOTH = words("type format title description enum items minItems maxItems minimum maximum anyOf") | words(
    "properties required additionalProperties propertyOrdering"
)

# The fields for JSON Schema ignore what is not in this list, and refuse anything beside a reference.
JSON_SCHEMA = Dialect(
    name="gemini",
    keeps=_BOTH | words("$id $defs $ref $anchor prefixItems oneOf"),
    references="definitions",
    enumerable=(str, int, float),
    unrolled=True,
)

# The older fields are typed objects: an unknown keyword, a null or a number in an enum, an array without items, or a
# required name without its property fails the whole request.
OPENAPI = Dialect(
    name="gemini-openapi",
    keeps=_BOTH | words("nullable default example minLength maxLength pattern minProperties maxProperties"),
    references="inlined",
    formats=words("date-time enum float double int32 int64"),
    enumerable=(str,),
    typed=True,
    nullable=True,
)


def is_validated(request: Request) -> bool:
    """Whether all functions are strict and may be chosen or not: that, and only that, is a mode of its own."""
    choice = request.tool_choice
    if choice is not None and choice.mode not in (None, "auto"):
        return False
    tools = [placed.tool for placed in tools_in_force(request) if not isinstance(placed.tool, NativeTool)]
    return bool(tools) and all(isinstance(tool, FunctionTool) and tool.strict for tool in tools)
