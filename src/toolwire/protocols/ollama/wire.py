"""Wire objects of Ollama's chat API."""

from msgspec import UNSET, Raw, UnsetType

from toolwire.codec.wire.reader import Extra, WireObject

FAMILY = "ollama"
CONSTRAINT_FAMILY = "ollama:constraint"
"""Family of extras that other protocols may not drop."""


class FunctionCallShape(WireObject):
    """The function of a call."""

    name: str
    arguments: Raw | UnsetType = UNSET
    index: int | UnsetType | None = UNSET  # position in the turn; older servers omit it


class CallShape(WireObject):
    """A tool call."""

    function: FunctionCallShape
    id: str | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET


class MessageShape(WireObject):
    """A message of a request or response, or what one line of a stream adds."""

    role: str | UnsetType | None = UNSET
    content: str | UnsetType | None = UNSET
    thinking: str | UnsetType | None = UNSET
    images: list[str] | UnsetType | None = UNSET
    tool_calls: list[CallShape] | UnsetType | None = UNSET
    tool_name: str | UnsetType | None = UNSET
    tool_call_id: str | UnsetType | None = UNSET


class FunctionShape(WireObject):
    """A function declaration."""

    name: str
    description: str | UnsetType | None = UNSET
    parameters: Raw | UnsetType = UNSET


class ToolShape(WireObject):
    """A tool declaration."""

    function: FunctionShape
    type: str | UnsetType | None = UNSET


class OptionsShape(WireObject):
    """Options with a canonical counterpart; the server has some twenty others."""

    num_predict: int | UnsetType | None = UNSET
    temperature: int | float | UnsetType | None = UNSET
    top_p: int | float | UnsetType | None = UNSET
    top_k: int | UnsetType | None = UNSET
    seed: int | UnsetType | None = UNSET
    stop: list[str] | UnsetType | None = UNSET
    presence_penalty: int | float | UnsetType | None = UNSET
    frequency_penalty: int | float | UnsetType | None = UNSET


class RequestShape(WireObject):
    """A chat request."""

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
    """A response, or one line of a stream; durations are in nanoseconds, and zeros are omitted."""

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
