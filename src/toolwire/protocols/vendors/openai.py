"""Code shared by OpenAI's two protocols, Chat Completions and Responses.

It holds the wording of their validation errors, error codes, strict schemas, log probabilities, settings
that depend on the model, and model lists.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.content import Media
from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.canonical.tools import OutputFormat, Thinking
from toolwire.codec.encoding.hosted_tools import parse_json
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.hosts.profile import EFFORTS
from toolwire.codec.interface import LogprobsLayout, SharedExtra, Target, TokenLogprobs
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.models.gpt import refuses_sampling
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.schema.rewriter import fit_schema, fit_strictly_and_report
from toolwire.codec.surface import ModelCard
from toolwire.codec.validation import ErrorWording, Findings, JsonPath, strict_violations, subschemas, text_of, word_set
from toolwire.codec.wire.reader import JSON_ERRORS

_encode_json = msgspec.json.Encoder().encode

NAME = re.compile("[a-zA-Z0-9_-]+")

SHARED_FAMILY = "openai"
"""The extras family of fields that both protocols spell the same way."""

OPENAI_ERROR_FORM = "openai:error"
"""Wire-form token of an error that came as OpenAI's error object: its `type` is valid in both protocols."""

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
"""Error kinds by `type`, for types that identify the cause."""

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
"""The `type` and `code` sent for each error kind."""

# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas; `default`, lengths and other formats are
# rejected by name.
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
    """Format a path as OpenAI's messages do: `input[0].content`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def openai_error_wording(protocol: str) -> ErrorWording:
    """Build the wording of OpenAI's validation errors for one protocol."""
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
    """Yield a finding if a string is longer than `max_length`."""
    if isinstance(value, str) and len(value) > max_length:
        message = f"Invalid '{{at}}': string too long. Expected a string with maximum length {max_length}, "
        yield error_wording.finding("field-long", path, f"{message}but got a string with length {len(value)} instead.")


def check_count(error_wording: ErrorWording, path: JsonPath, count: int, limit: int) -> Findings:
    """Check the length of an array."""
    if count > limit:
        message = f"Invalid '{{at}}': array too long. Expected an array with maximum length {limit}, "
        yield error_wording.finding("field-long", path, f"{message}but got an array with length {count} instead.")


def check_name(error_wording: ErrorWording, path: JsonPath, name: object, max_length: int) -> Findings:
    """Check length and characters of the name of a tool or schema."""
    yield from check_length(error_wording, path, name, max_length)
    if isinstance(name, str) and not NAME.fullmatch(name):
        message = "Invalid '{at}': string does not match pattern. Expected a string that matches the pattern "
        yield error_wording.finding("name-pattern", path, message + "'^[a-zA-Z0-9_-]+$'.")


def check_schema(error_wording: ErrorWording, at: JsonPath, schema: object, subject: str, *, strict: bool) -> Findings:
    """Yield a finding for each way in which OpenAI rejects a schema.

    `subject` names the function or format in the message. `strict` adds the rules of strict mode.
    """
    if not isinstance(schema, dict) or not schema:
        return
    if schema.get("type") != "object" and "$ref" not in schema:
        kind = text_of(schema.get("type")) or None
        message = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
        yield error_wording.finding("schema-type", at, f"Invalid schema for {subject}: {message}")
    if schema.keys() & {"oneOf", "anyOf", "allOf", "enum", "not"}:
        message = "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        yield error_wording.finding("schema-union", at, f"Invalid schema for {subject}: {message}")
    for path, part in subschemas(schema):
        if part.get("type") == "array" and not part.keys() & {"items", "prefixItems"}:
            message = f"Invalid schema for {subject}: In context={path}, array schema missing items."
            yield error_wording.finding("schema-items", (*at, *path), message)
    wording = {
        "open": "'additionalProperties' is required to be supplied and to be false.",
        "optional": "'required' is required to be supplied and to be an array including every key in properties.",
    }
    for reason, path, name in strict_violations(schema, NON_STRICT_KEYWORDS) if strict else ():
        message_detail = wording.get(reason, f"'{name}' is not permitted.")
        message_detail += f" Missing '{name}'." if reason == "optional" else ""
        yield error_wording.finding(
            f"strict-{reason}", (*at, *path), f"Invalid schema for {subject}: In context={path}, {message_detail}"
        )


def move_shared_extras(extras_and_form: dict[str, Any], family: str, *names: str) -> dict[str, Any]:
    """Return the arguments with the named extras moved from `family` to the family both protocols share."""
    family_extras = (extras_and_form.get("extras") or {}).get(family, {})
    shared = {name: value for name, value in family_extras.items() if name in names}
    if not shared:
        return extras_and_form
    remaining = {name: value for name, value in family_extras.items() if name not in shared}
    others = {name: fields for name, fields in extras_and_form["extras"].items() if name != family}
    return {
        **extras_and_form,
        "extras": {**others, **({family: remaining} if remaining else {}), SHARED_FAMILY: shared},
    }


def vendor_shared_extras(
    family: str, tier_family: str, tiers: Sequence[str], *, single_moderation: bool
) -> dict[str, dict[str, SharedExtra]]:
    """Return the response extras that both OpenAI protocols have, with their conversion.

    `single_moderation`: the protocol reports one moderation result instead of a list.
    """

    def tier(value: Raw) -> Raw | None:
        """Return the service tier if this protocol has it."""
        return value if parse_json(value) in tiers else None

    moderation = SharedExtra(
        family,
        "moderation",
        _to_moderation_lists if single_moderation else _unchanged,
        _from_moderation_lists if single_moderation else _unchanged,
    )
    shared_extras = {
        "service_tier": SharedExtra(tier_family, "service_tier", _unchanged, tier),
        "moderation": moderation,
    }
    return dict.fromkeys(("Response", "ResponseStart", "ResponseEnd"), shared_extras)


def _unchanged(value: Raw) -> Raw:
    """Return the value unchanged: both OpenAI protocols spell it the same way."""
    return value


def _to_moderation_lists(value: Raw) -> Raw | None:
    """Wrap each single moderation result in a list, as Chat Completions reports them."""

    def as_list(result: Any) -> Any:
        """Wrap a single moderation result in an object with a list of results; other values are unchanged."""
        if not isinstance(result, dict) or result.get("type") != "moderation_result":
            return result
        return {"type": "moderation_results", "model": result.get("model", ""), "results": [result]}

    sides = parse_json(value)
    return (
        Raw(_encode_json({side: as_list(result) for side, result in sides.items()}))
        if isinstance(sides, dict)
        else None
    )


def _from_moderation_lists(value: Raw) -> Raw | None:
    """Unwrap each list of one moderation result; None if a list holds more than that."""
    sides, single_results = parse_json(value), {}
    for side, result in sides.items() if isinstance(sides, dict) else ():
        match result:
            case {"type": "moderation_results", "model": model, "results": [{"model": named} as only]}:
                if len(result) > 3 or model != named:
                    return None
                single_results[side] = only
            case {"results": _}:
                return None
            case _:
                single_results[side] = result
    return Raw(_encode_json(single_results)) if isinstance(sides, dict) else None


class _ChoiceLogprobs(Struct, forbid_unknown_fields=True):
    """The `logprobs` object of a choice in Chat Completions."""

    content: list[dict[str, Any]] | None = None
    refusal: list[Raw] | None = None


_decode_choice_logprobs = msgspec.json.Decoder(_ChoiceLogprobs).decode
_decode_tokens = msgspec.json.Decoder(list[dict[str, Any]]).decode


def candidate_logprobs(family: str) -> LogprobsLayout:
    """Describe log probabilities as Chat Completions has them: one object per choice.

    Those of a refusal are not translated, since only Chat Completions has them.
    """

    def read(value: Raw) -> TokenLogprobs | None:
        """Return the token log probabilities in the `logprobs` object of a choice; None if it has none."""
        try:
            choice = _decode_choice_logprobs(value)
        except JSON_ERRORS:
            return None
        return None if choice.refusal else choice.content

    def write(tokens: TokenLogprobs) -> Raw:
        """Return the `logprobs` object of a choice for these tokens."""
        return Raw(_encode_json({"content": _complete_tokens(tokens, None), "refusal": None}))

    return LogprobsLayout(family, per_text=False, decode=read, encode=write)


def text_logprobs(family: str) -> LogprobsLayout:
    """Describe log probabilities as the Responses API has them: one list per text part."""

    def read(value: Raw) -> TokenLogprobs | None:
        """Return the token log probabilities in the list of a text part; None if it is not valid."""
        try:
            return _decode_tokens(value)
        except JSON_ERRORS:
            return None

    return LogprobsLayout(
        family, per_text=True, decode=read, encode=lambda tokens: Raw(_encode_json(_complete_tokens(tokens, [])))
    )


def _complete_tokens(tokens: TokenLogprobs, no_bytes: Any) -> TokenLogprobs:
    """Return the tokens with all fields that the official SDK types require.

    `no_bytes` is the value for a token without bytes.
    """

    def with_bytes(logprob: dict[str, Any]) -> dict[str, Any]:
        """Return a token with the `bytes` field that the SDK types require."""
        return logprob | {"bytes": no_bytes if logprob.get("bytes") is None else logprob["bytes"]}

    def top_tokens(logprob: dict[str, Any]) -> list[Any]:
        """Return the alternatives of a token, completed in the same way."""
        alternatives = logprob.get("top_logprobs")
        return (
            [with_bytes(other) if isinstance(other, dict) else other for other in alternatives]
            if isinstance(alternatives, list)
            else []
        )

    return [with_bytes(logprob) | {"top_logprobs": top_tokens(logprob)} for logprob in tokens]


REPRESENTED_USER = (f"{SHARED_FAMILY}:canonical:safety_identifier", f"{SHARED_FAMILY}:name:end_user=safety_identifier")
"""Wire-form tokens of a request that names its end user in `safety_identifier`, which both protocols have."""


def decode_end_user(user: str | None, extras_and_form: dict[str, Any]) -> str | None:
    """Return the end user from `user` or from its successor `safety_identifier`; None without either.

    An identifier used in this way is noted in `extras_and_form`, so that it is not reported as a loss.
    """
    raw = ((extras_and_form.get("extras") or {}).get(SHARED_FAMILY) or {}).get("safety_identifier")
    if user is not None or raw is None or not isinstance(identifier := parse_json(raw), str):
        return user
    extras_and_form["wire_form"] = (*extras_and_form.get("wire_form", ()), *REPRESENTED_USER)
    return identifier


CACHE_KEY = "prompt_cache_key"


def add_cache_key(body: dict[str, Any], target: Target, report: LossReport) -> None:
    """Write the conversation's key for the prompt cache into `body`, unless the client sent one."""
    if target.cache_key is not None and CACHE_KEY not in body:
        body[CACHE_KEY] = target.cache_key
        reason = "routes the requests of a conversation to the same cache"
        report.added((), "", f"/{CACHE_KEY}", reason, severity="info")


MISALIGNMENT_FIELDS = ("error/misalignment", "misalignment")
"""Pointers to the policy-violation details, from an error body or from the error object."""


def restore_error(members: Any, error: ApiError) -> Any:
    """Return an error object with the extras that both OpenAI protocols share written back."""
    for name, value in (error.extras or {}).get(SHARED_FAMILY, {}).items():
        members.setdefault(name.removeprefix("error/"), value)
    return members


IMAGE_DETAILS = ("auto", "low", "high", "original")
_NEAREST_IMAGE_DETAILS = {"medium": "auto", "ultra_high": "original"}


def encode_detail(part: Media, report: LossReport, path: SourcePath) -> str | None:
    """Return the image detail as one of OpenAI's values; None without one.

    A value that OpenAI lacks becomes the nearest one, which is reported.
    """
    detail = part.detail
    if detail is None or detail in IMAGE_DETAILS:
        return detail
    nearest = _NEAREST_IMAGE_DETAILS.get(detail, "auto")
    report.approximated(path, "detail", f"{detail} sent as {nearest}")
    return nearest


ErrorTypes = Mapping[ErrorKind, tuple[str, str | None]]


def encode_error_type(
    error: ApiError, types: ErrorTypes, path: SourcePath, report: LossReport
) -> tuple[str, str | None]:
    """Return the `type` and `code` for an error; one that came from OpenAI keeps its own type."""
    kind, code = types[error.kind]
    if error.raw is not None and OPENAI_ERROR_FORM in error.wire_form:
        return error.raw, None
    if error.raw is not None and error.raw != kind:
        report.approximated(path, "raw", f"{error.raw} sent as {kind}")
    return kind, code


def encode_output_schema(output: OutputFormat, report: LossReport, path: SourcePath) -> tuple[Raw | None, bool | None]:
    """Return the schema for structured output and whether the target enforces it strictly.

    A schema is enforced only if it fits unchanged: unlike tool arguments, responses are not mapped back.
    """
    schema, strict = output.schema, output.strict
    if schema is None:
        return schema, strict
    if strict:
        return fit_strictly_and_report(schema, STRICT_SCHEMA, report, path, "schema")
    if strict is None and output.held:
        fitted = fit_schema(schema, STRICT_SCHEMA)
        if fitted.rejection is None and not fitted.changes:
            return schema, True
        problem = fitted.rejection or f"{fitted.changes[0].path or 'the schema'}: {fitted.changes[0].reason}"
        report.approximated(path, "held", f"the target cannot enforce this schema: {problem}")
    return schema, strict


def fit_effort(
    effort: str | None, thinking: Thinking, plan: EncodingPlan, path: SourcePath = ("thinking",)
) -> str | None:
    """Return the model's effort level closest to this one, which the `thinking` settings led to."""
    levels = plan.model_info.efforts
    if effort is None or not levels or effort in levels:
        return effort
    fields = [name for name in ("effort", "enabled", "budget_tokens") if getattr(thinking, name) is not None]
    ranks = {level: rank for rank, level in enumerate(EFFORTS)}
    nearest = min(levels, key=lambda level: abs(ranks.get(level, len(ranks)) - ranks[effort]))
    plan.report.approximated(path, fields[0], f"the model does not support {effort}; sent as {nearest}")
    return nearest


def remove_unsupported_sampling(body: dict[str, Any], effort: object, plan: EncodingPlan) -> None:
    """Remove sampling parameters of another protocol that the model rejects: all but the default of 1."""
    if plan.same_protocol or not refuses_sampling(plan.model_info, plan.target.model or "", effort):
        return
    for name in ("temperature", "top_p"):
        if body.get(name, 1) != 1:
            del body[name]
            reason = "the model has no sampling parameters"
            if plan.model_info.sampling is None:
                reason += f" at the effort {effort}"
            plan.report.dropped(("sampling",), name, reason)


def encode_models(models: Sequence[ModelCard]) -> dict[str, Any]:
    """Encode the model list of `GET /v1/models`."""
    return {"object": "list", "data": [encode_model(model) for model in models]}


def encode_model(model: ModelCard) -> dict[str, Any]:
    """Encode one model of the list."""
    # OpenAI states no context; the field is OpenRouter's, and other servers have it, too.
    limits = {} if model.context is None else {"context_length": model.context}
    return {"id": model.id, "object": "model", "created": 0, "owned_by": model.owner, **limits}
