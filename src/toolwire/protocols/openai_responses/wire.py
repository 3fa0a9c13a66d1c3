"""The Responses API's wire objects, as msgspec reads and writes them."""

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field

from toolwire.codec.fields import Extra, Wire

FAMILY = "openai-responses"
SHARED = "openai"
"""The family of what this API and Chat Completions write alike."""
ECHO = FAMILY + ":echo"
GUARDED = FAMILY + ":guarded"
ISSUER = "openai"


# ---- content


class Content(Wire, tag_field="type"):
    """Any part of a message or of a result."""


class BreakpointShape(Wire):
    mode: str
    ttl: str | UnsetType = UNSET


class InputText(Content, tag="input_text"):
    text: str
    prompt_cache_breakpoint: BreakpointShape | UnsetType = UNSET


class InputImage(Content, tag="input_image"):
    image_url: str | UnsetType | None = UNSET
    file_id: str | UnsetType | None = UNSET
    detail: str | UnsetType | None = UNSET
    prompt_cache_breakpoint: BreakpointShape | UnsetType = UNSET


class InputFile(Content, tag="input_file"):
    file_data: str | UnsetType | None = UNSET
    file_url: str | UnsetType | None = UNSET
    file_id: str | UnsetType | None = UNSET
    filename: str | UnsetType | None = UNSET
    detail: str | UnsetType = UNSET
    prompt_cache_breakpoint: BreakpointShape | UnsetType = UNSET


class AudioShape(Wire):
    data: str
    format: str


class InputAudio(Content, tag="input_audio"):
    input_audio: AudioShape


class OutputText(Content, tag="output_text"):
    text: str
    annotations: list[Raw] | UnsetType = UNSET
    logprobs: Extra = UNSET


class RefusalPart(Content, tag="refusal"):
    refusal: str


ContentUnion = InputText | InputImage | InputFile | InputAudio | OutputText | RefusalPart


class AnnotationShape(Wire):
    """Annotations differ by type; what they have in common has a canonical home."""

    type: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    filename: str | UnsetType = UNSET
    start_index: int | UnsetType = UNSET
    end_index: int | UnsetType = UNSET


class Screenshot(Wire):
    type: str | UnsetType = UNSET
    image_url: str | UnsetType | None = UNSET
    file_id: str | UnsetType | None = UNSET


class ThoughtShape(Wire):
    """A text of a reasoning item: `summary_text` or `reasoning_text`."""

    text: str
    type: str | UnsetType = UNSET


# ---- items


class Item(Wire, tag_field="type", kw_only=True):
    """Any item that is read by shape. All others are read by name, or kept whole."""

    id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET


class EasyMessage(Wire):
    role: str
    id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    content: str | list[ContentUnion] | UnsetType = UNSET
    phase: str | UnsetType = UNSET


class MessageItem(Item, tag="message"):
    role: str
    content: str | list[ContentUnion] | UnsetType = UNSET
    phase: str | UnsetType = UNSET


class OrdinaryItem(Struct, forbid_unknown_fields=True, gc=False):
    """A message that is a text, a call or a result, in one shape: whoever reads it sees which of them it is."""

    type: Literal["function_call", "function_call_output"] | UnsetType = UNSET
    role: Literal["user", "assistant", "system", "developer"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET


class CallerShape(Wire):
    type: str
    caller_id: str | UnsetType = UNSET


class FunctionCall(Item, tag="function_call"):
    name: str
    call_id: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET
    asynchronous: bool | UnsetType = field(default=UNSET, name="async")


class CustomCall(Item, tag="custom_tool_call"):
    name: str
    call_id: str | UnsetType = UNSET
    input: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET
    asynchronous: bool | UnsetType = field(default=UNSET, name="async")


class FunctionOutput(Item, tag="function_call_output"):
    call_id: str | UnsetType = UNSET
    output: str | list[ContentUnion] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET


class CustomOutput(Item, tag="custom_tool_call_output"):
    call_id: str | UnsetType = UNSET
    output: str | list[ContentUnion] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET


class ReasoningItem(Item, tag="reasoning"):
    summary: list[ThoughtShape] | UnsetType = UNSET
    content: list[ThoughtShape] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


ItemUnion = MessageItem | FunctionCall | CustomCall | FunctionOutput | CustomOutput | ReasoningItem


class ReferenceItem(Wire):
    id: str
    type: str | UnsetType = UNSET


class AdditionalTools(Wire):
    type: str
    tools: list[Raw]
    id: str | UnsetType = UNSET
    role: str | UnsetType = UNSET


class ConfigurationUpdate(Wire):
    type: str
    id: str | UnsetType = UNSET
    reasoning: "ReasoningShape | UnsetType" = UNSET
    text: "TextShape | UnsetType" = UNSET


# ---- tools


class FunctionShape(Wire):
    type: str
    name: str
    description: str | UnsetType = UNSET
    parameters: Raw | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET
    defer_loading: bool | UnsetType = UNSET
    allowed_callers: list[str] | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET
    asynchronous: bool | UnsetType = field(default=UNSET, name="async")


class GrammarShape(Wire):
    type: str | UnsetType = UNSET
    syntax: str | UnsetType = UNSET
    definition: str | UnsetType = UNSET


class CustomShape(Wire):
    type: str
    name: str
    description: str | UnsetType = UNSET
    format: GrammarShape | UnsetType = UNSET
    defer_loading: bool | UnsetType = UNSET
    allowed_callers: list[str] | UnsetType = UNSET
    asynchronous: bool | UnsetType = field(default=UNSET, name="async")


class NamespaceShape(Wire):
    type: str
    name: str
    tools: list[Raw]
    description: str | UnsetType = UNSET


class ChosenShape(Wire):
    type: str
    name: str | UnsetType = UNSET
    server_label: str | UnsetType = UNSET


class ChoiceShape(ChosenShape):
    mode: str | UnsetType = UNSET
    tools: list[ChosenShape] | UnsetType = UNSET


# ---- requests


class FormatShape(Wire):
    type: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    schema: Raw | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET
    description: str | UnsetType = UNSET


class TextShape(Wire):
    format: FormatShape | UnsetType = UNSET
    verbosity: str | UnsetType = UNSET


class ReasoningShape(Wire):
    effort: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    context: Extra = UNSET
    mode: Extra = UNSET
    generate_summary: Extra = UNSET


class ConversationShape(Wire):
    id: str


class RequestShape(Wire):
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


class OrdinaryRequest(RequestShape):
    """A request in which every item is what nearly all are."""

    input: list[OrdinaryItem]  # type: ignore[assignment]
    instructions: str | UnsetType = UNSET


# ---- answers


class InputDetailsShape(Wire):
    cached_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    cache_write_tokens_details: Extra = UNSET


class OutputDetailsShape(Wire):
    reasoning_tokens: int | UnsetType = UNSET


class UsageShape(Wire):
    input_tokens: int | UnsetType = UNSET
    input_tokens_details: InputDetailsShape | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    output_tokens_details: OutputDetailsShape | UnsetType = UNSET
    total_tokens: int | UnsetType = UNSET


class IncompleteShape(Wire):
    reason: str | UnsetType = UNSET


class ErrorShape(Wire):
    message: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    param: str | UnsetType | None = UNSET
    code: str | int | UnsetType | None = UNSET
    misalignment: Extra = UNSET


class EchoShape(Wire):
    """What an answer repeats of its request, and of its own bookkeeping: nothing that it says itself."""

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
