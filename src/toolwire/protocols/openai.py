"""What is the same in both of OpenAI's protocols: how its servers put what they refuse, their strict schemas, what a
status means, and how they list models."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.content import Media
from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.canonical.tools import OutputFormat
from toolwire.codec.check import Findings, Path, Voice, subschemas, text_of, unstrict, words
from toolwire.codec.fields import BAD_JSON
from toolwire.codec.hosted import json_of
from toolwire.codec.interface import Alike
from toolwire.codec.losses import Report, Trail
from toolwire.codec.probabilities import Probabilities, Tokens
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.schema.fit import fit, fitted_strictly
from toolwire.codec.surface import ModelCard

_encode = msgspec.json.Encoder().encode

SHARED = "openai"
"""The family of what both write alike."""

OWN_ERROR = "openai:error"
"""In the form of an error: OpenAI's own object, whose type is the same word in both protocols."""

STATUSES: dict[int, ErrorKind] = {
    400: "invalid_request",
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    422: "invalid_request",
    429: "rate_limit",
    500: "server",
    502: "server",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}

ERROR_CODES: dict[str, ErrorKind] = {
    "context_length_exceeded": "context_length",
    "insufficient_quota": "billing",
    "billing_hard_limit_reached": "billing",
    "rate_limit_exceeded": "rate_limit",
    "model_not_found": "not_found",
    "invalid_api_key": "authentication",
    "overloaded": "overloaded",
    "server_error": "server",
}
ERROR_KINDS: dict[str, ErrorKind] = {
    "authentication_error": "authentication",
    "permission_error": "permission",
    "request_forbidden": "permission",
    "not_found_error": "not_found",
    "conflict_error": "conflict",
    "request_too_large": "too_large",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "tokens": "rate_limit",
    "requests": "rate_limit",
    "insufficient_quota": "billing",
    "overloaded_error": "overloaded",
    "service_unavailable_error": "overloaded",
    "timeout_error": "timeout",
}
"""By type: those that say what happened."""

ERROR_TYPES: dict[ErrorKind, tuple[str, str | None]] = {
    "invalid_request": ("invalid_request_error", None),
    "authentication": ("authentication_error", "invalid_api_key"),
    "billing": ("insufficient_quota", "insufficient_quota"),
    "permission": ("permission_error", None),
    "not_found": ("not_found_error", None),
    "conflict": ("conflict_error", None),
    "too_large": ("request_too_large", None),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "context_length": ("invalid_request_error", "context_length_exceeded"),
    "timeout": ("timeout_error", None),
    "overloaded": ("overloaded_error", "overloaded"),
}
"""The type and the code that tell a kind of error."""

# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas; a default, a length or another format is
# refused by name.
STRICT = Dialect(
    name="openai-strict",
    keeps=words("type enum const anyOf $ref $defs properties required additionalProperties items title description")
    | words("pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems"),
    references="definitions",
    formats=words("date-time time date duration email hostname ipv4 ipv6 uuid"),
    typed=True,
    closed="unfit",
    complete=True,
)
NOT_STRICT = words("oneOf allOf not dependentRequired dependentSchemas if then else")


def _place(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def openai_voice(protocol: str) -> Voice:
    return Voice(
        protocol,
        place=_place,
        types={
            "string": "a string",
            "integer": "an integer",
            "number": "a decimal",
            "boolean": "a boolean",
            "array": "an array",
            "object": "an object",
        },
        missing="Missing required parameter: '{at}'.",
        type="Invalid type for '{at}': expected {types}, but got {got} instead.",
        word="Invalid value: '{value}'. Supported values are: {words}.",
        last=", and ",
    )


def check_length(voice: Voice, path: Path, value: object, longest: int) -> Findings:
    if isinstance(value, str) and len(value) > longest:
        said = f"Invalid '{{at}}': string too long. Expected a string with maximum length {longest}, "
        yield voice.found("field-long", path, f"{said}but got a string with length {len(value)} instead.")


def check_schema(voice: Voice, at: Path, schema: object, of: str, *, strict: bool) -> Findings:
    if not isinstance(schema, dict) or not schema:
        return
    if schema.get("type") != "object" and "$ref" not in schema:
        kind = text_of(schema.get("type")) or None
        said = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
        yield voice.found("schema-type", at, f"Invalid schema for {of}: {said}")
    if schema.keys() & {"oneOf", "anyOf", "allOf", "enum", "not"}:
        said = "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        yield voice.found("schema-union", at, f"Invalid schema for {of}: {said}")
    for path, part in subschemas(schema):
        if part.get("type") == "array" and not part.keys() & {"items", "prefixItems"}:
            said = f"Invalid schema for {of}: In context={path}, array schema missing items."
            yield voice.found("schema-items", (*at, *path), said)
    wording = {
        "open": "'additionalProperties' is required to be supplied and to be false.",
        "optional": "'required' is required to be supplied and to be an array including every key in properties.",
    }
    for reason, path, name in unstrict(schema, NOT_STRICT) if strict else ():
        why = wording.get(reason, f"'{name}' is not permitted.")
        why += f" Missing '{name}'." if reason == "optional" else ""
        yield voice.found(f"strict-{reason}", (*at, *path), f"Invalid schema for {of}: In context={path}, {why}")


def shared(kept: dict[str, Any], family: str, *names: str) -> dict[str, Any]:
    """What was kept of a wire object, with these fields as both protocols'."""
    own = (kept.get("extras") or {}).get(family, {})
    both = {name: value for name, value in own.items() if name in names}
    if not both:
        return kept
    left = {name: value for name, value in own.items() if name not in both}
    others = {name: fields for name, fields in kept["extras"].items() if name != family}
    return {**kept, "extras": {**others, **({family: left} if left else {}), SHARED: both}}


def alike(family: str, tier_family: str, tiers: Sequence[str], *, single: bool) -> dict[str, dict[str, Alike]]:
    """What the answers of both protocols say. `single`: what was moderated has one result, and no list of them."""

    def tier(value: Raw) -> Raw | None:
        return value if json_of(value) in tiers else None

    moderation = Alike(family, "moderation", _listed if single else _same, _unlisted if single else _same)
    words = {"service_tier": Alike(tier_family, "service_tier", _same, tier), "moderation": moderation}
    return dict.fromkeys(("Response", "ResponseStart", "ResponseEnd"), words)


def _same(value: Raw) -> Raw:
    return value


def _listed(value: Raw) -> Raw | None:
    """One result of a moderation, of what was asked or answered, as a list of one."""

    def listed(one: Any) -> Any:
        if not isinstance(one, dict) or one.get("type") != "moderation_result":
            return one
        return {"type": "moderation_results", "model": one.get("model", ""), "results": [one]}

    sides = json_of(value)
    return Raw(_encode({side: listed(one) for side, one in sides.items()})) if isinstance(sides, dict) else None


def _unlisted(value: Raw) -> Raw | None:
    """The only result of each list; None if a list says more than that."""
    sides, told = json_of(value), {}
    for side, one in sides.items() if isinstance(sides, dict) else ():
        match one:
            case {"type": "moderation_results", "model": model, "results": [{"model": named} as only]}:
                if len(one) > 3 or model != named:
                    return None
                told[side] = only
            case {"results": _}:
                return None
            case _:
                told[side] = one
    return Raw(_encode(told)) if isinstance(sides, dict) else None


class _OfChoice(Struct, forbid_unknown_fields=True):
    content: list[dict[str, Any]] | None = None
    refusal: list[Raw] | None = None


_read_choice = msgspec.json.Decoder(_OfChoice).decode
_read_tokens = msgspec.json.Decoder(list[dict[str, Any]]).decode


def told_of_candidates(family: str) -> Probabilities:
    """Log probabilities as Chat has them: of the words of a choice, or of its refusal, which only Chat tells."""

    def read(value: Raw) -> Tokens | None:
        try:
            choice = _read_choice(value)
        except BAD_JSON:
            return None
        return None if choice.refusal else choice.content

    def write(tokens: Tokens) -> Raw:
        return Raw(_encode({"content": _completed(tokens, None), "refusal": None}))

    return Probabilities(family, of_texts=False, read=read, write=write)


def told_of_texts(family: str) -> Probabilities:
    """Log probabilities as Responses has them."""

    def read(value: Raw) -> Tokens | None:
        try:
            return _read_tokens(value)
        except BAD_JSON:
            return None

    return Probabilities(family, of_texts=True, read=read, write=lambda tokens: Raw(_encode(_completed(tokens, []))))


def _completed(tokens: Tokens, nothing: Any) -> Tokens:
    """Tokens with all that the official types insist on. `nothing`: what a token without bytes has in their place."""

    def token(one: dict[str, Any]) -> dict[str, Any]:
        return one | {"bytes": nothing if one.get("bytes") is None else one["bytes"]}

    def several(one: dict[str, Any]) -> list[Any]:
        found = one.get("top_logprobs")
        return (
            [token(other) if isinstance(other, dict) else other for other in found] if isinstance(found, list) else []
        )

    return [token(one) | {"top_logprobs": several(one)} for one in tokens]


IDENTIFIED = (f"{SHARED}:told:safety_identifier", f"{SHARED}:name:end_user=safety_identifier")
"""In the form of a request: it names its user by the field that both protocols share."""


def identified(user: str | None, kept: dict[str, Any]) -> str | None:
    """Who asks. What `user` said is said by `safety_identifier` now, as others say it by a field of their own."""
    raw = ((kept.get("extras") or {}).get(SHARED) or {}).get("safety_identifier")
    if user is not None or raw is None or not isinstance(named := json_of(raw), str):
        return user
    kept["form"] = (*kept.get("form", ()), *IDENTIFIED)
    return named


LIMIT_USER = 64


def encode_user(user: str, report: Report, legal: re.Pattern[str] | None = None) -> str:
    """Return the end user's id for `user`; one that is too long or not legal becomes a digest, the same each time."""
    if len(user) <= LIMIT_USER and (legal is None or legal.fullmatch(user)):
        return user
    report.approximated((), "end_user", f"not {LIMIT_USER} plain characters or less: sent as a digest")
    return hashlib.sha256(user.encode(errors="surrogatepass")).hexdigest()


MISALIGNMENT = ("error/misalignment", "misalignment")
"""Why a policy was violated, below an error's body or in an error itself."""


def restore_error(members: Any, error: ApiError) -> Any:
    """An error's own object with what both protocols may say in it."""
    for name, value in (error.extras or {}).get(SHARED, {}).items():
        members.setdefault(name.removeprefix("error/"), value)
    return members


DETAILS = ("auto", "low", "high", "original")
_NEAREST_DETAILS = {"medium": "auto", "ultra_high": "original"}


def encode_detail(part: Media, report: Report, trail: Trail) -> str | None:
    """How closely media are to be looked at, in OpenAI's words."""
    detail = part.detail
    if detail is None or detail in DETAILS:
        return detail
    told = _NEAREST_DETAILS.get(detail, "auto")
    report.approximated(trail, "detail", f"{detail} is told as {told}")
    return told


Types = Mapping[ErrorKind, tuple[str, str | None]]


def encode_type(error: ApiError, types: Types, trail: Trail, report: Report) -> tuple[str, str | None]:
    """The type and code of another protocol's error; of OpenAI's other one, its own type."""
    kind, code = types[error.kind]
    if error.raw is not None and OWN_ERROR in error.form:
        return error.raw, None
    if error.raw is not None and error.raw != kind:
        report.approximated(trail, "raw", f"{error.raw} is told as {kind}")
    return kind, code


def encode_format(output: OutputFormat, report: Report, trail: Trail) -> tuple[Raw | None, bool | None]:
    """The schema that another protocol's answer is to have, and whether it is held to it. Only to a schema as it was:
    unlike a tool's, nobody takes out of an answer what a stricter one brings in."""
    schema, strict = output.schema, output.strict
    if schema is None:
        return schema, strict
    if strict:
        return fitted_strictly(schema, STRICT, report, trail, "schema")
    if strict is None and output.held:
        found = fit(schema, STRICT)
        if found.unfit is None and not found.changes:
            return schema, True
        why = found.unfit or f"{found.changes[0].path or 'the schema'}: {found.changes[0].why}"
        report.approximated(trail, "held", f"the target can't hold an answer to this schema: {why}")
    return schema, strict


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    return {"object": "list", "data": [encode_model(one) for one in models]}


def encode_model(model: ModelCard) -> dict[str, Any]:
    return {"id": model.id, "object": "model", "created": 0, "owned_by": model.owner}
