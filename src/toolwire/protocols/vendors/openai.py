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
from toolwire.codec.encoding.hosted_tools import parse_json
from toolwire.codec.interface import LogprobsLayout, SharedExtra, TokenLogprobs
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.schema.rewriter import fit_schema, fit_strictly_and_report
from toolwire.codec.surface import ModelCard
from toolwire.codec.validation import ErrorWording, Findings, JsonPath, strict_violations, subschemas, text_of, word_set
from toolwire.codec.wire.reader import JSON_ERRORS

_encode_json = msgspec.json.Encoder().encode

SHARED_FAMILY = "openai"
"""The family of what both write alike."""

OPENAI_ERROR_FORM = "openai:error"
"""In the form of an error: OpenAI's own object, whose type is the same word in both protocols."""

STATUS_KINDS: dict[int, ErrorKind] = {
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
STRICT_SCHEMA = Dialect(
    name="openai-strict",
    keywords=word_set(
        "type enum const anyOf $ref $defs properties required additionalProperties items title description"
    )
    | word_set("pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems"),
    references="definitions",
    formats=word_set("date-time time date duration email hostname ipv4 ipv6 uuid"),
    requires_types=True,
    closed_objects="unfit",
    requires_all_properties=True,
)
NON_STRICT_KEYWORDS = word_set("oneOf allOf not dependentRequired dependentSchemas if then else")


def _format_path(path: JsonPath) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def openai_error_wording(protocol: str) -> ErrorWording:
    return ErrorWording(
        protocol,
        format_path=_format_path,
        type_names={
            "string": "a string",
            "integer": "an integer",
            "number": "a decimal",
            "boolean": "a boolean",
            "array": "an array",
            "object": "an object",
        },
        missing_message="Missing required parameter: '{at}'.",
        type_message="Invalid type for '{at}': expected {types}, but got {got} instead.",
        choice_message="Invalid value: '{value}'. Supported values are: {words}.",
        last_separator=", and ",
    )


def check_length(error_wording: ErrorWording, path: JsonPath, value: object, max_length: int) -> Findings:
    if isinstance(value, str) and len(value) > max_length:
        said = f"Invalid '{{at}}': string too long. Expected a string with maximum length {max_length}, "
        yield error_wording.finding("field-long", path, f"{said}but got a string with length {len(value)} instead.")


def check_schema(error_wording: ErrorWording, at: JsonPath, schema: object, subject: str, *, strict: bool) -> Findings:
    if not isinstance(schema, dict) or not schema:
        return
    if schema.get("type") != "object" and "$ref" not in schema:
        kind = text_of(schema.get("type")) or None
        said = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
        yield error_wording.finding("schema-type", at, f"Invalid schema for {subject}: {said}")
    if schema.keys() & {"oneOf", "anyOf", "allOf", "enum", "not"}:
        said = "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        yield error_wording.finding("schema-union", at, f"Invalid schema for {subject}: {said}")
    for path, part in subschemas(schema):
        if part.get("type") == "array" and not part.keys() & {"items", "prefixItems"}:
            said = f"Invalid schema for {subject}: In context={path}, array schema missing items."
            yield error_wording.finding("schema-items", (*at, *path), said)
    wording = {
        "open": "'additionalProperties' is required to be supplied and to be false.",
        "optional": "'required' is required to be supplied and to be an array including every key in properties.",
    }
    for reason, path, name in strict_violations(schema, NON_STRICT_KEYWORDS) if strict else ():
        why = wording.get(reason, f"'{name}' is not permitted.")
        why += f" Missing '{name}'." if reason == "optional" else ""
        yield error_wording.finding(
            f"strict-{reason}", (*at, *path), f"Invalid schema for {subject}: In context={path}, {why}"
        )


def move_shared_extras(extras_and_form: dict[str, Any], family: str, *names: str) -> dict[str, Any]:
    """What was kept of a wire object, with these fields as both protocols'."""
    own = (extras_and_form.get("extras") or {}).get(family, {})
    both = {name: value for name, value in own.items() if name in names}
    if not both:
        return extras_and_form
    left = {name: value for name, value in own.items() if name not in both}
    others = {name: fields for name, fields in extras_and_form["extras"].items() if name != family}
    return {**extras_and_form, "extras": {**others, **({family: left} if left else {}), SHARED_FAMILY: both}}


def vendor_shared_extras(
    family: str, tier_family: str, tiers: Sequence[str], *, single_moderation: bool
) -> dict[str, dict[str, SharedExtra]]:
    """What the answers of both protocols say. `single`: what was moderated has one result, and no list of them."""

    def tier(value: Raw) -> Raw | None:
        return value if parse_json(value) in tiers else None

    moderation = SharedExtra(
        family,
        "moderation",
        _to_moderation_lists if single_moderation else _unchanged,
        _from_moderation_lists if single_moderation else _unchanged,
    )
    words = {"service_tier": SharedExtra(tier_family, "service_tier", _unchanged, tier), "moderation": moderation}
    return dict.fromkeys(("Response", "ResponseStart", "ResponseEnd"), words)


def _unchanged(value: Raw) -> Raw:
    return value


def _to_moderation_lists(value: Raw) -> Raw | None:
    """One result of a moderation, of what was asked or answered, as a list of one."""

    def listed(one: Any) -> Any:
        if not isinstance(one, dict) or one.get("type") != "moderation_result":
            return one
        return {"type": "moderation_results", "model": one.get("model", ""), "results": [one]}

    sides = parse_json(value)
    return Raw(_encode_json({side: listed(one) for side, one in sides.items()})) if isinstance(sides, dict) else None


def _from_moderation_lists(value: Raw) -> Raw | None:
    """The only result of each list; None if a list says more than that."""
    sides, told = parse_json(value), {}
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
    return Raw(_encode_json(told)) if isinstance(sides, dict) else None


class _ChoiceLogprobs(Struct, forbid_unknown_fields=True):
    content: list[dict[str, Any]] | None = None
    refusal: list[Raw] | None = None


_decode_choice_logprobs = msgspec.json.Decoder(_ChoiceLogprobs).decode
_decode_tokens = msgspec.json.Decoder(list[dict[str, Any]]).decode


def candidate_logprobs(family: str) -> LogprobsLayout:
    """Log probabilities as Chat has them: of the words of a choice, or of its refusal, which only Chat tells."""

    def read(value: Raw) -> TokenLogprobs | None:
        try:
            choice = _decode_choice_logprobs(value)
        except JSON_ERRORS:
            return None
        return None if choice.refusal else choice.content

    def write(tokens: TokenLogprobs) -> Raw:
        return Raw(_encode_json({"content": _complete_tokens(tokens, None), "refusal": None}))

    return LogprobsLayout(family, per_text=False, decode=read, encode=write)


def text_logprobs(family: str) -> LogprobsLayout:
    """Log probabilities as Responses has them."""

    def read(value: Raw) -> TokenLogprobs | None:
        try:
            return _decode_tokens(value)
        except JSON_ERRORS:
            return None

    return LogprobsLayout(
        family, per_text=True, decode=read, encode=lambda tokens: Raw(_encode_json(_complete_tokens(tokens, [])))
    )


def _complete_tokens(tokens: TokenLogprobs, no_bytes: Any) -> TokenLogprobs:
    """Tokens with all that the official types insist on. `nothing`: what a token without bytes has in their place."""

    def token(one: dict[str, Any]) -> dict[str, Any]:
        return one | {"bytes": no_bytes if one.get("bytes") is None else one["bytes"]}

    def several(one: dict[str, Any]) -> list[Any]:
        found = one.get("top_logprobs")
        return (
            [token(other) if isinstance(other, dict) else other for other in found] if isinstance(found, list) else []
        )

    return [token(one) | {"top_logprobs": several(one)} for one in tokens]


REPRESENTED_USER = (f"{SHARED_FAMILY}:canonical:safety_identifier", f"{SHARED_FAMILY}:name:end_user=safety_identifier")
"""In the form of a request: it names its user by the field that both protocols share."""


def decode_end_user(user: str | None, extras_and_form: dict[str, Any]) -> str | None:
    """Who asks. What `user` said is said by `safety_identifier` now, as others say it by a field of their own."""
    raw = ((extras_and_form.get("extras") or {}).get(SHARED_FAMILY) or {}).get("safety_identifier")
    if user is not None or raw is None or not isinstance(named := parse_json(raw), str):
        return user
    extras_and_form["wire_form"] = (*extras_and_form.get("wire_form", ()), *REPRESENTED_USER)
    return named


MAX_USER_LENGTH = 64


def encode_user(user: str, report: LossReport, pattern: re.Pattern[str] | None = None) -> str:
    """Return the end user's id for `user`; one that is too long or not legal becomes a digest, the same each time."""
    if len(user) <= MAX_USER_LENGTH and (pattern is None or pattern.fullmatch(user)):
        return user
    report.approximated((), "end_user", f"not {MAX_USER_LENGTH} plain characters or less: sent as a digest")
    return hashlib.sha256(user.encode(errors="surrogatepass")).hexdigest()


MISALIGNMENT_FIELDS = ("error/misalignment", "misalignment")
"""Why a policy was violated, below an error's body or in an error itself."""


def restore_error(members: Any, error: ApiError) -> Any:
    """An error's own object with what both protocols may say in it."""
    for name, value in (error.extras or {}).get(SHARED_FAMILY, {}).items():
        members.setdefault(name.removeprefix("error/"), value)
    return members


IMAGE_DETAILS = ("auto", "low", "high", "original")
_NEAREST_IMAGE_DETAILS = {"medium": "auto", "ultra_high": "original"}


def encode_detail(part: Media, report: LossReport, path: SourcePath) -> str | None:
    """How closely media are to be looked at, in OpenAI's words."""
    detail = part.detail
    if detail is None or detail in IMAGE_DETAILS:
        return detail
    told = _NEAREST_IMAGE_DETAILS.get(detail, "auto")
    report.approximated(path, "detail", f"{detail} is told as {told}")
    return told


ErrorTypes = Mapping[ErrorKind, tuple[str, str | None]]


def encode_error_type(
    error: ApiError, types: ErrorTypes, path: SourcePath, report: LossReport
) -> tuple[str, str | None]:
    """The type and code of another protocol's error; of OpenAI's other one, its own type."""
    kind, code = types[error.kind]
    if error.raw is not None and OPENAI_ERROR_FORM in error.wire_form:
        return error.raw, None
    if error.raw is not None and error.raw != kind:
        report.approximated(path, "raw", f"{error.raw} is told as {kind}")
    return kind, code


def encode_output_schema(output: OutputFormat, report: LossReport, path: SourcePath) -> tuple[Raw | None, bool | None]:
    """The schema that another protocol's answer is to have, and whether it is held to it. Only to a schema as it was:
    unlike a tool's, nobody takes out of an answer what a stricter one brings in."""
    schema, strict = output.schema, output.strict
    if schema is None:
        return schema, strict
    if strict:
        return fit_strictly_and_report(schema, STRICT_SCHEMA, report, path, "schema")
    if strict is None and output.held:
        found = fit_schema(schema, STRICT_SCHEMA)
        if found.rejection is None and not found.changes:
            return schema, True
        why = found.rejection or f"{found.changes[0].path or 'the schema'}: {found.changes[0].reason}"
        report.approximated(path, "held", f"the target can't hold an answer to this schema: {why}")
    return schema, strict


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    return {"object": "list", "data": [encode_model(one) for one in models]}


def encode_model(model: ModelCard) -> dict[str, Any]:
    return {"id": model.id, "object": "model", "created": 0, "owned_by": model.owner}
