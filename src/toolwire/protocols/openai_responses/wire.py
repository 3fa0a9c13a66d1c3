"""Wire objects of the Responses API as msgspec structs."""

from msgspec import UNSET, Raw, Struct, UnsetType, field

from toolwire.codec.wire.reader import Extra, WireObject

FAMILY = "openai-responses"
SHARED_FAMILY = "openai"
"""The extras family of fields that this API and Chat Completions spell the same way."""
ECHO_FAMILY = FAMILY + ":echo"
"""The extras family of response fields that only repeat the request."""
CONSTRAINT_FAMILY = FAMILY + ":constraint"
"""The extras family of safety limits, which a translation must not drop silently."""
ISSUER = "openai"
"""The issuer of encrypted reasoning and of file ids."""

# ---- content


class Content(WireObject, tag_field="type"):
    """Any content part of a message or a tool output."""


class BreakpointShape(WireObject):
    """A prompt cache breakpoint on a content part."""

    mode: str
    ttl: str | UnsetType = UNSET


class InputText(Content, tag="input_text"):
    """Text of a user, system or developer message, or of a tool output."""

    text: str
    prompt_cache_breakpoint: BreakpointShape | UnsetType = UNSET


class InputImage(Content, tag="input_image"):
    """An image by URL, data URL or file id."""

    image_url: str | UnsetType | None = UNSET
    file_id: str | UnsetType | None = UNSET
    detail: str | UnsetType | None = UNSET
    prompt_cache_breakpoint: BreakpointShape | UnsetType = UNSET


class InputFile(Content, tag="input_file"):
    """A file by data URL, URL or file id."""

    file_data: str | UnsetType | None = UNSET
    file_url: str | UnsetType | None = UNSET
    file_id: str | UnsetType | None = UNSET
    filename: str | UnsetType | None = UNSET
    detail: str | UnsetType = UNSET
    prompt_cache_breakpoint: BreakpointShape | UnsetType = UNSET


class AudioShape(WireObject):
    """Base64 audio and its format."""

    data: str
    format: str


class InputAudio(Content, tag="input_audio"):
    """Audio of a user message."""

    input_audio: AudioShape


class OutputText(Content, tag="output_text"):
    """Text produced by the model."""

    text: str
    annotations: list[Raw] | UnsetType = UNSET
    logprobs: Extra = UNSET


class RefusalPart(Content, tag="refusal"):
    """A refusal produced by the model."""

    refusal: str


ContentUnion = InputText | InputImage | InputFile | InputAudio | OutputText | RefusalPart


class AnnotationShape(WireObject):
    """The fields that annotations of all types have in common."""

    type: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    filename: str | UnsetType = UNSET
    start_index: int | UnsetType = UNSET
    end_index: int | UnsetType = UNSET


class ScreenshotShape(WireObject):
    """The output of a computer call."""

    type: str | UnsetType = UNSET
    image_url: str | UnsetType | None = UNSET
    file_id: str | UnsetType | None = UNSET


class ReasoningTextShape(WireObject):
    """A text of a reasoning item: `summary_text` or `reasoning_text`."""

    text: str
    type: str | UnsetType = UNSET


# ---- items


class Item(WireObject, tag_field="type", kw_only=True):
    """Any item decoded by shape; items of other types are decoded by field name or preserved unread."""

    id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET


class EasyMessage(WireObject):
    """A message without `type`, the short form that requests may use."""

    role: str
    id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    content: str | list[ContentUnion] | UnsetType = UNSET
    phase: str | UnsetType = UNSET


class MessageItem(Item, tag="message"):
    """A message with `type`, as in responses."""

    role: str
    content: str | list[ContentUnion] | UnsetType = UNSET
    phase: str | UnsetType = UNSET


class CallerShape(WireObject):
    """The caller of a tool: the model itself or one of its programs."""

    type: str
    caller_id: str | UnsetType = UNSET


class FunctionCall(Item, tag="function_call"):
    """A call of a function tool."""

    name: str
    call_id: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET
    asynchronous: bool | UnsetType = field(default=UNSET, name="async")


class CustomCall(Item, tag="custom_tool_call"):
    """A call of a custom tool, whose input is free text."""

    name: str
    call_id: str | UnsetType = UNSET
    input: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET
    asynchronous: bool | UnsetType = field(default=UNSET, name="async")


class FunctionOutput(Item, tag="function_call_output"):
    """The output of a function call."""

    call_id: str | UnsetType = UNSET
    output: str | list[ContentUnion] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET


class CustomOutput(Item, tag="custom_tool_call_output"):
    """The output of a custom tool call."""

    call_id: str | UnsetType = UNSET
    output: str | list[ContentUnion] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET


class ReasoningItem(Item, tag="reasoning"):
    """Reasoning of the model, as text or encrypted."""

    summary: list[ReasoningTextShape] | UnsetType = UNSET
    content: list[ReasoningTextShape] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


ItemUnion = MessageItem | FunctionCall | CustomCall | FunctionOutput | CustomOutput | ReasoningItem


class ReferenceItem(WireObject):
    """A reference to an item that the provider stores."""

    id: str
    type: str | UnsetType = UNSET


class AdditionalTools(WireObject):
    """Tools added in the middle of a conversation."""

    type: str
    tools: list[Raw]
    id: str | UnsetType = UNSET
    role: str | UnsetType = UNSET


class ConfigurationUpdate(WireObject):
    """Settings changed in the middle of a conversation."""

    type: str
    id: str | UnsetType = UNSET
    reasoning: "ReasoningShape | UnsetType" = UNSET
    text: "TextShape | UnsetType" = UNSET


# ---- tools


class FunctionShape(WireObject):
    """The declaration of a function tool."""

    type: str
    name: str
    description: str | UnsetType = UNSET
    parameters: Raw | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET
    defer_loading: bool | UnsetType = UNSET
    allowed_callers: list[str] | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET
    asynchronous: bool | UnsetType = field(default=UNSET, name="async")


class GrammarShape(WireObject):
    """The input format of a custom tool."""

    type: str | UnsetType = UNSET
    syntax: str | UnsetType = UNSET
    definition: str | UnsetType = UNSET


class CustomShape(WireObject):
    """The declaration of a custom tool."""

    type: str
    name: str
    description: str | UnsetType = UNSET
    format: GrammarShape | UnsetType = UNSET
    defer_loading: bool | UnsetType = UNSET
    allowed_callers: list[str] | UnsetType = UNSET
    asynchronous: bool | UnsetType = field(default=UNSET, name="async")


class NamespaceShape(WireObject):
    """A named group of tools."""

    type: str
    name: str
    tools: list[Raw]
    description: str | UnsetType = UNSET


class ToolReferenceShape(WireObject):
    """A tool named in `tool_choice`."""

    type: str
    name: str | UnsetType = UNSET
    server_label: str | UnsetType = UNSET


class ChoiceShape(ToolReferenceShape):
    """An object as `tool_choice`: a single tool or a set of allowed tools."""

    mode: str | UnsetType = UNSET
    tools: list[ToolReferenceShape] | UnsetType = UNSET


# ---- requests


class FormatShape(WireObject):
    """The output format in `text.format`."""

    type: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    schema: Raw | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET
    description: str | UnsetType = UNSET


class TextShape(WireObject):
    """The `text` settings of a request."""

    format: FormatShape | UnsetType = UNSET
    verbosity: str | UnsetType = UNSET


class ReasoningShape(WireObject):
    """The `reasoning` settings of a request."""

    effort: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    context: Extra = UNSET
    mode: Extra = UNSET
    generate_summary: Extra = UNSET


class ConversationShape(WireObject):
    """A conversation that the provider stores."""

    id: str


class RequestShape(WireObject):
    """The body of `POST /v1/responses`."""

    input: str | list[Raw] | UnsetType = UNSET
    model: str | UnsetType = UNSET
    instructions: str | list[Raw] | UnsetType = UNSET
    tools: list[Raw] | UnsetType = UNSET
    tool_choice: str | ChoiceShape | UnsetType = UNSET
    parallel_tool_calls: bool | UnsetType = UNSET
    stream: bool | UnsetType = UNSET
    max_output_tokens: int | UnsetType = UNSET
    temperature: int | float | UnsetType = UNSET
    top_p: int | float | UnsetType = UNSET
    top_logprobs: int | UnsetType = UNSET
    reasoning: ReasoningShape | UnsetType = UNSET
    text: TextShape | UnsetType = UNSET
    store: bool | UnsetType = UNSET
    background: bool | UnsetType = UNSET
    previous_response_id: str | UnsetType = UNSET
    conversation: str | ConversationShape | UnsetType = UNSET
    metadata: Raw | UnsetType = UNSET
    user: str | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    include: Extra = UNSET
    truncation: Extra = UNSET
    max_tool_calls: Extra = UNSET
    context_management: Extra = UNSET
    stream_options: Extra = UNSET
    prompt: Extra = UNSET
    image: Extra = UNSET
    access_programs: Extra = UNSET
    prompt_cache_key: Extra = UNSET
    prompt_cache_options: Extra = UNSET
    prompt_cache_retention: Extra = UNSET
    moderation: Extra = UNSET
    safety_identifier: Extra = UNSET


# ---- responses


class InputDetailsShape(WireObject):
    """Cached tokens of the input."""

    cached_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    cache_write_tokens_details: Extra = UNSET


class OutputDetailsShape(WireObject):
    """Reasoning tokens of the output."""

    reasoning_tokens: int | UnsetType = UNSET


class UsageShape(WireObject):
    """Token usage of a response."""

    input_tokens: int | UnsetType = UNSET
    input_tokens_details: InputDetailsShape | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    output_tokens_details: OutputDetailsShape | UnsetType = UNSET
    total_tokens: int | UnsetType = UNSET


class IncompleteShape(WireObject):
    """The reason why a response is incomplete."""

    reason: str | UnsetType = UNSET


class ErrorShape(WireObject):
    """An error of a request, a response or a stream."""

    message: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    param: str | UnsetType | None = UNSET
    code: str | int | UnsetType | None = UNSET
    misalignment: Extra = UNSET


class EchoShape(WireObject):
    """The response fields that repeat the request or serve the provider's bookkeeping."""

    background: Extra = UNSET
    completed_at: Extra = UNSET
    frequency_penalty: Extra = UNSET
    instructions: Extra = UNSET
    max_output_tokens: Extra = UNSET
    max_tool_calls: Extra = UNSET
    metadata: Extra = UNSET
    parallel_tool_calls: Extra = UNSET
    presence_penalty: Extra = UNSET
    previous_response_id: Extra = UNSET
    prompt: Extra = UNSET
    prompt_cache_key: Extra = UNSET
    prompt_cache_options: Extra = UNSET
    prompt_cache_retention: Extra = UNSET
    reasoning: Extra = UNSET
    safety_identifier: Extra = UNSET
    service_tier: Extra = UNSET
    store: Extra = UNSET
    temperature: Extra = UNSET
    text: Extra = UNSET
    tool_choice: Extra = UNSET
    tools: Extra = UNSET
    top_logprobs: Extra = UNSET
    top_p: Extra = UNSET
    truncation: Extra = UNSET
    user: Extra = UNSET


class ResponseShape(EchoShape):
    """A response, complete or inside a stream event."""

    output: list[Raw] | UnsetType | None = UNSET
    id: str | UnsetType = UNSET
    object: str | UnsetType = UNSET
    created_at: int | float | UnsetType = UNSET
    model: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    error: ErrorShape | UnsetType | None = UNSET
    incomplete_details: IncompleteShape | UnsetType | None = UNSET
    usage: UsageShape | UnsetType | None = UNSET
    conversation: ConversationShape | UnsetType | None = UNSET
    billing: Extra = UNSET
    moderation: Extra = UNSET
    tool_usage: Extra = UNSET
    prompt_cache_diagnostics: Extra = UNSET


class Frame(WireObject, tag_field="type", kw_only=True):
    """A delta event: the types that arrive once per token. Other events are decoded by field name."""

    sequence_number: int | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    obfuscation: Raw | UnsetType = UNSET


class TextDelta(Frame, tag="response.output_text.delta"):
    """A delta of output text."""

    delta: str
    content_index: int | UnsetType = UNSET
    logprobs: Raw | UnsetType = UNSET


class RefusalDelta(Frame, tag="response.refusal.delta"):
    """A delta of a refusal."""

    delta: str
    content_index: int | UnsetType = UNSET


class ArgumentsDelta(Frame, tag="response.function_call_arguments.delta"):
    """A delta of function call arguments."""

    delta: str


class InputDelta(Frame, tag="response.custom_tool_call_input.delta"):
    """A delta of custom tool input."""

    delta: str


class SummaryDelta(Frame, tag="response.reasoning_summary_text.delta"):
    """A delta of a reasoning summary."""

    delta: str
    summary_index: int | UnsetType = UNSET


class ReasoningTextDelta(Frame, tag="response.reasoning_text.delta"):
    """A delta of reasoning text."""

    delta: str
    content_index: int | UnsetType = UNSET


DeltaUnion = TextDelta | RefusalDelta | ArgumentsDelta | InputDelta | SummaryDelta | ReasoningTextDelta


class UntypedFrame(Struct):
    """Any stream event; its objects stay raw until a handler needs them."""

    type: str = ""
    response: Raw | UnsetType = UNSET
    item: Raw | UnsetType = UNSET
    part: Raw | UnsetType = UNSET
    annotation: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    output_index: int | UnsetType | None = UNSET
    item_id: str | UnsetType | None = UNSET
    content_index: int | UnsetType | None = UNSET
    summary_index: int | UnsetType | None = UNSET
    delta: Raw | UnsetType = UNSET
    text: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    arguments: Raw | UnsetType = UNSET
    input: Raw | UnsetType = UNSET
