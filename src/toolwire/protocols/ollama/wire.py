"""Ollama's wire objects, as msgspec reads and writes them."""

from msgspec import UNSET, Raw, UnsetType

from toolwire.codec.wire.reader import Extra, WireObject

FAMILY = "ollama"
CONSTRAINT_FAMILY = "ollama:constraint"
"""The family of what may not be dropped elsewhere."""


class FunctionCallShape(WireObject):
    """`index` is the place of the call in its turn; older servers leave it out."""

    name: str
    arguments: Raw | UnsetType = UNSET
    index: int | UnsetType | None = UNSET


class CallShape(WireObject):
    function: FunctionCallShape
    id: str | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET


class MessageShape(WireObject):
    """A message of a request, of an answer, or what one line of a stream adds to it."""

    role: str | UnsetType | None = UNSET
    content: str | UnsetType | None = UNSET
    thinking: str | UnsetType | None = UNSET
    images: list[str] | UnsetType | None = UNSET
    tool_calls: list[CallShape] | UnsetType | None = UNSET
    tool_name: str | UnsetType | None = UNSET
    tool_call_id: str | UnsetType | None = UNSET


class FunctionShape(WireObject):
    name: str
    description: str | UnsetType | None = UNSET
    parameters: Raw | UnsetType = UNSET


class ToolShape(WireObject):
    function: FunctionShape
    type: str | UnsetType | None = UNSET


class OptionsShape(WireObject):
    """Those that other protocols have, too. The server knows some twenty more, and ignores what it does not know."""

    num_predict: int | UnsetType | None = UNSET
    temperature: int | float | UnsetType | None = UNSET
    top_p: int | float | UnsetType | None = UNSET
    top_k: int | UnsetType | None = UNSET
    seed: int | UnsetType | None = UNSET
    stop: list[str] | UnsetType | None = UNSET
    presence_penalty: int | float | UnsetType | None = UNSET
    frequency_penalty: int | float | UnsetType | None = UNSET


class RequestShape(WireObject):
    model: str | UnsetType = UNSET
    messages: list[MessageShape] | UnsetType | None = UNSET
    tools: list[Raw] | UnsetType | None = UNSET
    format: Raw | UnsetType = UNSET
    think: bool | str | UnsetType | None = UNSET
    stream: bool | UnsetType | None = UNSET
    options: OptionsShape | UnsetType | None = UNSET
    logprobs: bool | UnsetType | None = UNSET
    top_logprobs: int | UnsetType | None = UNSET
    keep_alive: Extra = UNSET
    truncate: Extra = UNSET
    shift: Extra = UNSET


class ResponseShape(WireObject):
    """A whole answer, or one line of a stream. The durations are in nanoseconds, and zeros are left out."""

    message: MessageShape | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    created_at: str | UnsetType | None = UNSET
    done: bool | UnsetType | None = UNSET
    done_reason: str | UnsetType | None = UNSET
    prompt_eval_count: int | UnsetType | None = UNSET
    eval_count: int | UnsetType | None = UNSET
    error: Raw | UnsetType = UNSET
    total_duration: Extra = UNSET
    load_duration: Extra = UNSET
    prompt_eval_duration: Extra = UNSET
    eval_duration: Extra = UNSET
    remote_model: Extra = UNSET
    remote_host: Extra = UNSET
    logprobs: Extra = UNSET
