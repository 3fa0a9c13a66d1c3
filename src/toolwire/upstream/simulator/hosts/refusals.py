"""Refusals of a host: the fact that a request violates, the message of the host, and the body of its error."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.codec.hosts.profile import ErrorTemplate, HostProfile
from toolwire.codec.validation import JsonObject, text_of


class Violation(Struct, frozen=True):
    """A fact of the profile that a request violates, such as `tools.max_count`, and the values for its message."""

    fact: str
    values: dict[str, object]
    param: str | None = None  # the field that the host names


Violations = Iterator[Violation]
Check = Callable[[JsonObject, HostProfile], Violations]


def violation(fact: str, param: str | None = None, **values: object) -> Violation:
    """Return a violation with the values for the braces of its message."""
    return Violation(fact, values, param)


class HostRefusal(Exception):
    """The host refuses the request with this status and body."""

    def __init__(self, status: int, body: bytes, fact: str) -> None:
        super().__init__(f"{fact}: {body.decode()}")
        self.status = status
        self.body = body
        self.fact = fact


# Where a profile quotes no message: OpenAI's, or one in its style.
_TEMPLATES = {
    "choice.modes": "Invalid value for 'tool_choice': '{choice}' is not supported.",
    "choice.thinking_modes": "tool_choice '{choice}' is not supported while thinking is enabled.",
    "choice.tools": "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
    "content.cache_marks": "Unknown parameter: '{path}'.",
    "content.empty_assistant": "Invalid value for 'messages[{index}].content': it must not be empty.",
    "content.image_models": "Invalid content type. image_url is not supported by this model.",
    "content.image_urls": "Invalid 'messages[{index}]': only data URLs of images are supported.",
    "content.media": "Invalid value: '{type}'. It is not supported in messages with role '{role}'.",
    "content.null": "Invalid value for 'messages[{index}].content': expected a string, got null.",
    "content.null_with_calls": "Invalid value for 'messages[{index}].content': expected a string, got null.",
    "content.string_roles": "Invalid type for 'messages[{index}].content': expected a string, got an array.",
    "fields.by_model": "Unsupported parameter: '{name}' is not supported with this model.",
    "fields.max_temperature": "Invalid 'temperature': decimal above maximum value. Expected a value <= {limit}.",
    "fields.unknown": "Unknown parameter: '{name}'.",
    "fields.user_pattern": "Invalid '{name}': string does not match pattern '{pattern}'.",
    "messages.final_assistant": "The last message must not have the role 'assistant'.",
    "messages.late_system": "System message must be at the beginning.",
    "messages.members": "Unknown parameter: 'messages[{index}].{name}'.",
    "messages.results": "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'. The following tool_call_ids did not have response messages: {id}",
    "messages.roles": "Invalid value: '{role}'. Supported values are: {roles}.",
    "messages.user_after_tool": "Unexpected role 'user' after role 'tool'",
    "messages.user_required": "At least one message must have the role 'user'.",
    "output.caps": "max_tokens is too large: {value}. This model supports at most {limit} completion tokens.",
    "output.format_required": "Required",
    "output.formats": "Invalid value for 'response_format.type': '{type}' is not supported.",
    "output.json_in_prompt_required": "'messages' must contain the word 'json' in some form, to use 'response_format' "
    "of type 'json_object'.",
    "output.limit_field": "Unsupported parameter: '{name}'. Use '{expected}' instead.",
    "output.stop_limit": "Invalid 'stop': array too long. Expected an array with maximum length {limit}.",
    "output.stream_options": "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    "output.with_tools": "'response_format' of type '{type}' cannot be combined with tools.",
    "reasoning.replay": "The reasoning of message {index} is missing.",
    "reasoning.signatures": "Invalid reasoning: '{name}' is not supported.",
    "thinking.can_disable": "Thinking cannot be disabled for {model}.",
    "thinking.efforts": "Unsupported value: '{effort}' is not supported with {model}. Supported values are: {words}.",
    "thinking.stream_only": "Thinking is only supported with streaming.",
    "thinking.switch": "Unsupported parameter: '{name}' is not supported with this model.",
    "tools.arguments": "Invalid 'messages[{index}].tool_calls': arguments are not valid JSON.",
    "tools.bare_functions": "Invalid schema for function '{name}': schema must be of type 'object'.",
    "tools.empty_list": "[] is too short - 'tools'",
    "tools.freeform": "Invalid value: '{type}'. Supported values are: 'function'.",
    "tools.hosted": "Invalid value: '{type}'. Supported values are: 'function'.",
    "tools.id_pattern": "Invalid '{path}': string does not match pattern '{pattern}'.",
    "tools.max_count": "Invalid 'tools': array too long. Expected an array with maximum length {limit}, but got an "
    "array with length {count} instead.",
    "tools.name_pattern": "Invalid '{path}': string does not match pattern '{pattern}'.",
    "tools.refused_keywords": "Invalid schema for function '{name}': unsupported keywords {names}.",
    "tools.schema": "Invalid schema for function '{name}': {detail}",
    "tools.strict": "Unknown parameter: 'tools[{index}].function.strict'.",
    "tools.typed": "tools.{index}: unknown variant `{type}`",
    "tools.web_search": "Unknown parameter: 'web_search_options'.",
}
# Facts whose message stands for another one.
_SAME_TEMPLATE = {
    "messages.several_system": "messages.late_system",
    "messages.order": "messages.user_after_tool",
    "fields.refused": "fields.unknown",
    "fields.known": "fields.unknown",
    "thinking.words": "thinking.efforts",
    "messages.content": "content.null",
    "content.null": "messages.content",
    "tools.hosted": "tools.freeform",
    "content.media": "content.image_models",
}


def refuse(found: Violation, profile: HostProfile) -> HostRefusal:
    """Return the host's answer to a request with this violation."""
    error_template = _template(found.fact, profile)
    message = error_template.message.format_map({"path": found.param or "", "model": "", **found.values})
    values = {
        "$message": _embed_object(message),
        "$type": error_template.type or profile.errors.type,
        "$code": error_template.code or profile.errors.code,
        "$param": found.param,
        "$status": error_template.status,
    }
    template = msgspec.json.decode(profile.errors.body)
    return HostRefusal(error_template.status, msgspec.json.encode(_fill(template, values)), found.fact)


def _template(fact: str, profile: HostProfile) -> ErrorTemplate:
    """Return the template of the message for a fact, or else a general one."""
    templates = profile.errors.templates
    alternative = _SAME_TEMPLATE.get(fact, fact)
    if found := templates.get(fact) or templates.get(alternative):
        return found
    return ErrorTemplate(message=_TEMPLATES.get(fact) or _TEMPLATES[alternative])


def _embed_object(message: str) -> Any:
    """Return the object in a message that is one as JSON, as in Mistral's errors."""
    return msgspec.json.decode(message) if message.startswith('{"') else message


def _fill(template: Any, values: dict[str, Any]) -> Any:
    """Return the body with its placeholders replaced."""
    match template:
        case dict():
            return {name: _fill(value, values) for name, value in template.items()}
        case list():
            return [_fill(value, values) for value in template]
        case str():
            return values.get(template, template)
        case _:
            return template


def model_of(body: JsonObject) -> str:
    """Return the model that a body names."""
    return text_of(body.get("model"))
