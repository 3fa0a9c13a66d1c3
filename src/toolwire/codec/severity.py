"""The severity of a loss, derived from its kind and from what was lost.

Everything that can be lost has a *weight*. A whole value, such as a message, a tool or a part, is *content*. A field of
it is a *setting*. The tables below list the exceptions by type and field: fields that are content, *schemas*, and
*labels*, which change neither prompt nor answer. Encoders pass a severity of their own only where the same field
matters in one case and not in another.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from toolwire.canonical.content import OpaquePart, Text, ToolCall, ToolResult
from toolwire.canonical.errors import Direction, LossKind, Severity

_Weight = Literal["content", "setting", "label", "schema"]

_SEVERITIES: Mapping[_Weight, Mapping[LossKind, Severity]] = {
    "content": {"dropped": "error", "approximated": "warning", "added": "warning"},
    "setting": {"dropped": "warning", "approximated": "warning", "added": "warning"},
    "label": {"dropped": "info", "approximated": "info", "added": "info"},
    # a schema is a hint to the model: to write it differently changes nothing
    "schema": {"dropped": "warning", "approximated": "info", "added": "info"},
}

_VALUES: Mapping[str, _Weight] = {
    "CacheMark": "label",  # affects price and latency, never the answer
    "Caller": "setting",
    "Reasoning": "setting",  # another provider's in a history; not part of the answer in a response
    "SettingChange": "setting",
    "Signature": "label",  # only its issuer can use it; it weighs more in `_RESPONSE_WEIGHTS`
    "Thinking": "setting",
    "Usage": "label",
    "Citation": "setting",
    "str": "setting",
}
"""Weights of values that are not content."""

_FIELDS: Mapping[str, _Weight] = {
    # what the model is to read, call or produce
    "Continuation.id": "content",
    "ItemRef.id": "content",
    "Media.source": "content",
    "OutputFormat.kind": "content",
    "OutputFormat.schema": "schema",
    "Sampling.n": "content",
    "Sampling.stop": "content",
    "ToolCall.arguments": "content",
    "ToolCall.name": "content",
    "ToolChoice.mode": "content",
    "ToolChoice.names": "content",
    "ToolChoice.required": "content",
    "ToolResult.content": "content",
    "FunctionTool.parameters": "schema",
    # names, ids and marks that nothing depends on, or that are restored on the return path
    "ApiError.*": "label",  # kind, status and message are always translated
    "Citation.*": "label",
    "Computer.height": "label",
    "Computer.width": "label",
    "FreeformTool.defer": "label",
    "FreeformTool.namespace": "label",
    "FunctionTool.defer": "label",
    "FunctionTool.namespace": "label",
    "Media.media_type": "label",
    "Message.id": "label",
    "Message.phase": "label",
    "Message.status": "label",
    "OutputFormat.name": "label",
    "Reasoning.*": "label",
    "Request.end_user": "label",
    "Request.labels": "label",
    "Text.id": "label",
    "ToolCall.id": "label",
    "ToolCall.toolset": "label",
    "ToolResult.name": "label",
    "ToolResult.namespace": "label",
    "ToolResult.status": "label",  # stated in the text
    "ToolResult.toolset": "label",
    "Usage.*": "label",
    "CacheMark.*": "label",
    "*.cache": "label",
    "*.cache_control": "label",
    # among the extras, those that the model reads
    "Media.context": "content",
    "Media.videoMetadata": "content",
    "Message.audio": "content",
    "Request.cachedContent": "content",
    "Request.cached_content": "content",
    "Request.prompt": "content",
    "OutputFormat.response_format": "content",
    "Request.generationConfig/responseMimeType": "content",
    "Request.generationConfig/responseSchema": "content",
    "Request.response_format": "content",
    # and those that it never notices
    "FunctionTool.defer_loading": "label",
    "FunctionTool.eager_input_streaming": "label",
    "Request.client_metadata": "label",
    "Request.debug": "label",
    "Request.fallback_credit_token": "label",
    "Request.diagnostics": "label",
    "Request.keep_alive": "label",
    "Request.prediction": "label",
    "Request.prompt_cache_key": "label",
    "Request.prompt_cache_options": "label",
    "Request.prompt_cache_retention": "label",
    "Request.session_id": "label",
    "Request.stream_options/include_obfuscation": "label",
    "Request.trace": "label",
    "Request.usage": "label",
    "Text.logprobs": "label",
    "Text.partMetadata": "label",
    "ToolCall.thoughtSignature": "label",
    "ToolChoice.streamFunctionCallArguments": "label",
}
"""Weights of fields that are not settings, and of extras (fields without a canonical counterpart).

An extra is found by its complete pointer or by the first name in it. `*` stands for all others.
"""

_RESPONSE_WEIGHTS: Mapping[str, _Weight] = {
    "Citation": "content",
    "Signature": "setting",  # the next turn lacks it
    # beside its content, a response repeats the request's settings and describes its generation
    "Candidate.*": "label",
    "Continuation.id": "label",
    "Response.*": "label",
    "Text.*": "label",
    "ToolCall.created_by": "label",
    "ToolCall.index": "label",
    "ToolCall.function/index": "label",
    # results that a client may have requested, and state that its next request needs
    **dict.fromkeys(
        (
            f"{owner}.{field}"
            for owner in ("Response", "Candidate")
            for field in (
                "citationMetadata",
                "container",
                "continuationToken",
                "continuation_token",
                "environment_id",
                "errors",
                "finishMessage",
                "groundingMetadata",
                "logprobs",
                "logprobsResult",
                "moderation",
                "promptFeedback",
                "prompt_filter_results",
                "safeguard_results",
                "stop_details",
                "urlContextMetadata",
            )
        ),
        "setting",
    ),
    "Text.logprobs": "setting",
}
"""Weights in responses and errors, where they differ from those in requests."""

_NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "background": (False,),
    "frequency_penalty": (0,),
    "logprobs": (False,),
    "n": (1,),
    "parallel": (True,),
    "presence_penalty": (0,),
    "stop": ((),),
    "strict": (False,),
    "temperature": (1,),
    "tier": ("auto", "default", "standard"),
    "top_logprobs": (0,),
    "top_p": (1,),
    "validated": (False,),
}
"""Values, by canonical field, that mean the same as no value."""

_NEUTRAL_EXTRAS = frozenset({b"[]", b'""', b'"disabled"'})
"""JSON of extras that mean the same as no value. An empty object is not among them: it may enable something."""

_SCHEMA_ANNOTATIONS = frozenset({"$anchor", "$comment", "$id", "$schema", "additionalProperties", "examples", "title"})
"""Keywords that do not tell a model which values are valid."""


def derive_severity(kind: LossKind, direction: Direction, node: Any, field: str) -> Severity:
    """Return the severity of a loss that concerns a field of `node`, or the whole node if `field` is empty."""
    if type(node) is tuple and node:
        node = node[0]
    severity = _derive_field_severity(kind, direction, type(node).__name__, field)
    if not field:
        return _weigh_part(node, severity) if severity == "error" else severity
    neutral = _NEUTRAL_VALUES.get(field)
    return "info" if neutral is not None and getattr(node, field, None) in neutral else severity


def _weigh_part(node: Any, severity: Severity) -> Severity:
    """Return the severity of a dropped part: lower for blank text, and for calls that the provider ran itself."""
    if isinstance(node, Text):
        return severity if node.text.strip() else "info"
    if isinstance(node, ToolCall | ToolResult):
        return "warning" if node.executor == "server" else severity
    return "warning" if isinstance(node, OpaquePart) and node.use is not None else severity


def derive_extras_severities(
    kind: LossKind, direction: Direction, node: Any, keys: tuple[str, ...]
) -> tuple[Severity, ...]:
    """Return the severity of each extra of a node; empty values are of no consequence."""
    owner = type(node).__name__
    severities = [_derive_field_severity(kind, direction, owner, key) for key in keys]
    for extras in node.extras.values():
        for index, key in enumerate(keys):
            if severities[index] != "info" and bytes(extras.get(key, b"")) in _NEUTRAL_EXTRAS:
                severities[index] = "info"
    return tuple(severities)


def derive_change_severity(kind: LossKind, direction: Direction, node: Any, field: str, pointer: str) -> Severity:
    """Return the severity of a change at a JSON pointer inside a field, such as a keyword of a schema."""
    severity = _derive_field_severity(kind, direction, type(node).__name__, field)
    is_annotation = _FIELDS.get(f"{type(node).__name__}.{field}") == "schema" and (
        pointer.rpartition("/")[2] in _SCHEMA_ANNOTATIONS
    )
    return "info" if is_annotation else severity


@lru_cache(maxsize=4096)
def _derive_field_severity(kind: LossKind, direction: Direction, owner: str, field: str) -> Severity:
    """Return the severity by type and field; `field` may also be a JSON pointer below the node (`//name`)."""
    return _SEVERITIES[_find_weight(direction, owner, field.removeprefix("//"))][kind]


def _find_weight(direction: Direction, owner: str, field: str) -> _Weight:
    """Return the weight of a field, found by its complete pointer or the first name in it, or of the whole value."""
    if not field:
        is_other = direction == "response" and owner in _RESPONSE_WEIGHTS
        return _RESPONSE_WEIGHTS[owner] if is_other else _VALUES.get(owner, "content")
    keys = (f"{owner}.{field}", f"{owner}.{field.partition('/')[0]}", f"*.{field}", f"{owner}.*")
    tables = (_RESPONSE_WEIGHTS, _FIELDS) if direction == "response" else (_FIELDS,)
    for key in keys:
        for table in tables:
            if (weight := table.get(key)) is not None:
                return weight
    return "setting"
