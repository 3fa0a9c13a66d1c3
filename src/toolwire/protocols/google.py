"""What is the same in both of Google's protocols: the schemas that its models take."""

from toolwire.codec.check import words
from toolwire.codec.schema.dialect import Dialect

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
