"""Chat's settings of a request, sampling, thinking and output, to canonical and back."""

import re
from operator import attrgetter
from typing import Any, Literal

from msgspec import UNSET, Raw

from toolwire.canonical.request import Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.kept import given, joined, known, note_extras
from toolwire.codec.plan import Plan
from toolwire.codec.settings import NEVER_SAID, report_unsent
from toolwire.protocols.openai import encode_format
from toolwire.protocols.openai_chat.parts.content import kept, spelled, spelling
from toolwire.protocols.openai_chat.wire import FAMILY, JsonSchemaShape, RequestShape, ResponseFormatShape

ALIAS = "openai-chat:name:max_tokens=max_tokens"
ONE_STOP = "openai-chat:stop:string"
LEAST_TOKENS = 1
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

# "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
_NO_TOOLS_WHILE_THINKING = re.compile(r"gpt-(5\.[456]|6)")
_UNDESCRIBED = "openai-chat:absent:json_schema"
_FORMATS: dict[str, Literal["text", "json", "json_schema"]] = {
    "text": "text",
    "json_object": "json",
    "json_schema": "json_schema",
}
_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "n",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "logprobs",
    "top_logprobs",
)
_sampling = attrgetter(*_SAMPLING)
_NO_SAMPLING = (None,) * len(_SAMPLING)


# ---- decode


def decode_sampling(shape: RequestShape) -> Sampling | None:
    form: tuple[str, ...] = ()
    limit = known(shape.max_completion_tokens)
    found: dict[str, Any] = {}
    if isinstance(shape.max_tokens, int):
        if limit is None:
            limit, form = shape.max_tokens, (ALIAS,)
        else:
            found["extras"] = {FAMILY: {"max_tokens": Raw(str(shape.max_tokens).encode())}}
    stop = shape.stop
    if isinstance(stop, str):
        stop, form = [stop], (*form, ONE_STOP)
    values = {name: known(getattr(shape, name)) for name in _SAMPLING}
    sampling = Sampling(
        max_tokens=limit, stop=tuple(stop) if isinstance(stop, list) else None, form=form, **values, **found
    )
    return None if sampling == Sampling() else sampling


def decode_output(shape: RequestShape) -> OutputFormat | None:
    verbosity = known(shape.verbosity)
    asked = shape.response_format
    if not isinstance(asked, ResponseFormatShape):
        return None if verbosity is None else OutputFormat(verbosity=verbosity)
    found = kept(asked, under="response_format/")
    schema = asked.json_schema
    if schema is UNSET:
        kind = _FORMATS.get(known(asked.type) or "")
        if kind is None and asked == ResponseFormatShape():
            found = {"extras": {FAMILY: {"response_format": Raw(b"{}")}}}
            note_extras()
        elif kind is None:
            found = joined(found, spelled("response_format/type", asked.type, "text"))
        elif kind == "json_schema":
            found = joined(found, {"form": (_UNDESCRIBED,)})
        return OutputFormat(kind=kind, verbosity=verbosity, **found)
    word = spelled("response_format/type", asked.type, "json_schema")
    found = joined(found, kept(schema, under="response_format/json_schema/"), word)
    return OutputFormat(
        kind="json_schema",
        schema=known(schema.schema),
        name=known(schema.name),
        description=known(schema.description),
        strict=known(schema.strict),
        verbosity=verbosity,
        **found,
    )


# ---- encode


def encode_sampling(request: Request, body: dict[str, Any], plan: Plan) -> None:
    sampling = request.sampling
    if sampling is None:
        return
    if sampling.max_tokens is not None:
        limit = sampling.max_tokens
        if limit < LEAST_TOKENS and not plan.home:
            plan.report.approximated(("sampling",), "max_tokens", f"the target gives at least {LEAST_TOKENS}")
            limit = LEAST_TOKENS
        word = "max_completion_tokens" if plan.home else plan.target.host.limit
        body["max_tokens" if ALIAS in sampling.form else word] = limit
    if sampling.stop is not None:
        stop = list(sampling.stop)
        if len(stop) > 4 and not plan.home:
            for index in range(4, len(stop)):
                plan.report.dropped(("sampling", "stop", index), "", "the target takes four stop sequences")
            stop = stop[:4]
        body["stop"] = stop[0] if ONE_STOP in sampling.form and len(stop) == 1 else stop
    for name in _SAMPLING if _sampling(sampling) != _NO_SAMPLING else ():
        value = getattr(sampling, name)
        if value is None:
            continue
        if name == "top_k" and not plan.home:
            plan.report.dropped(("sampling",), "top_k")
        else:
            body[name] = value
    if sampling.top_logprobs is not None and not plan.home:
        if sampling.logprobs is False:
            del body["top_logprobs"]
            plan.report.dropped(("sampling",), "top_logprobs", "no log probabilities are asked for")
        else:
            body["logprobs"] = True  # Responses gives them to whoever says how many


def encode_thinking(request: Request, body: dict[str, Any], plan: Plan) -> None:
    thinking = request.thinking
    if not plan.home and not plan.target.host.effort:
        if thinking is not None:
            report_unsent(thinking, plan, "the host may refuse an effort: its model decides how to think")
        return
    if thinking is not None:
        effort = thinking.effort if plan.home else _effort(thinking, plan)
        if effort is not None:
            body["reasoning_effort"] = effort
    if "tools" in body and not plan.home:
        _calm(body, plan)


def _calm(body: dict[str, Any], plan: Plan) -> None:
    """Some models refuse tools here while they think, and think unless told not to."""
    effort = body.get("reasoning_effort")
    if effort == "none" or not _NO_TOOLS_WHILE_THINKING.match(plan.target.model or ""):
        return
    body["reasoning_effort"] = "none"
    if effort is None:
        plan.report.invented((), "", "/reasoning_effort", "the model takes tools only while it does not think")
    else:
        plan.report.approximated(("thinking",), "effort", "the model takes tools only while it does not think: none")


def _effort(thinking: Thinking, plan: Plan) -> str | None:
    """How hard another protocol's model was to think, in this one's words."""
    effort, report = thinking.effort, plan.report
    if thinking.visibility is not None:
        report.dropped(("thinking",), "visibility", NEVER_SAID)
    if effort is not None and effort not in EFFORTS:
        report.approximated(("thinking",), "effort", f"{effort} is told as high")
        effort = "high"
    if thinking.budget_tokens is not None:
        budget = thinking.budget_tokens
        guess = "low" if budget <= 2048 else "medium" if budget <= 8192 else "high"
        report.approximated(("thinking",), "budget_tokens", f"told as an effort: {effort or guess}")
        return effort or guess
    if thinking.enabled is False and effort is None:
        return "none"
    if thinking.enabled is not None and effort is None:
        report.approximated(("thinking",), "enabled", "the target's model decides itself whether to think")
    elif thinking.enabled is False and effort != "none":
        report.approximated(("thinking",), "enabled", f"told as an effort: {effort}")
    return effort


def encode_output(request: Request, body: dict[str, Any], plan: Plan) -> None:
    output = request.output
    if output is None:
        return
    if output.verbosity is not None:
        body["verbosity"] = output.verbosity
    match output.kind:
        case "text":
            body["response_format"] = {"type": "text"}
        case "json":
            body["response_format"] = {"type": "json_object"}
        case "json_schema":
            name = output.name
            if name is None and not plan.home:
                name = "response"
                why = "the target wants a name for the schema"
                plan.report.invented(("output",), "schema", "/response_format/json_schema/name", why)
            schema, strict = output.schema, output.strict
            if not plan.home:
                schema, strict = encode_format(output, plan.report, ("output",))
            described = JsonSchemaShape(
                name=given(name),
                description=given(output.description),
                schema=given(schema),
                strict=given(strict),
            )
            word = spelling(output, "response_format/type", "json_schema")
            shape = ResponseFormatShape(type=word, json_schema=described)
            if plan.home and _UNDESCRIBED in output.form and described == JsonSchemaShape():
                shape.json_schema = UNSET
            body["response_format"] = shape
        case None:
            pass
