"""Which schemas a model takes, and the older ones as JSON Schema: their types are in capitals, null is a keyword."""

import re
from typing import Any

from msgspec import Raw

from toolwire.codec.check import words
from toolwire.codec.plan import Plan
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.schema.fit import fit
from toolwire.protocols.gemini.parts.spelling import extra
from toolwire.protocols.gemini.wire import FAMILY
from toolwire.protocols.google import JSON_SCHEMA, OPENAPI

# Before 2.5 a model knows the older schemas only: https://github.com/envoyproxy/ai-gateway/pull/1512.
_OLD = re.compile(r"gemini-(?:1\.|2\.0)")
_PLAIN = Dialect(name="json-schema", lacks=words("nullable"))


def decode_schema(schema: Raw, name: str) -> tuple[Raw, dict[str, Any]]:
    """The schema, and what it was where that was something else; as it is if something in it can't be read."""
    found = fit(schema, _PLAIN)
    if not found.changes or any(change.kind == "dropped" for change in found.changes):
        return schema, {}
    return found.schema, {**extra(name, schema), "form": (f"{FAMILY}:told:{name}",)}


def dialect_of(plan: Plan) -> Dialect:
    return OPENAPI if _OLD.search(plan.target.model or "") else JSON_SCHEMA
