"""Gemini's wire objects, as msgspec reads and writes them: attributes here are the names that it takes as well."""

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.codec.wire.reader import Extra, WireObject

FAMILY = "gemini"
ISSUER = "google"
"""Who signs thoughts and holds files, whatever the protocol that shows them."""


class Shape(WireObject, rename="camel"):
    """Any object. Servers write camelCase and read both; `spelling` gives a shape what came in snake_case."""


class BlobShape(Shape):
    mime_type: str | UnsetType = UNSET
    data: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET


class FileShape(Shape):
    file_uri: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET


class PartialArgumentShape(Shape):
    """A value of a streamed argument, or a piece of its text, and where it belongs."""

    json_path: str | UnsetType = UNSET
    string_value: str | UnsetType = UNSET
    number_value: Raw | UnsetType = UNSET
    bool_value: bool | UnsetType = UNSET
    null_value: Raw | UnsetType = UNSET
    will_continue: bool | UnsetType = UNSET


class CallShape(Shape):
    name: str | UnsetType = UNSET
    args: Raw | UnsetType = UNSET
    id: str | UnsetType = UNSET
    partial_args: Extra = UNSET
    will_continue: Extra = UNSET


class ResultShape(Shape):
    name: str | UnsetType = UNSET
    response: Raw | UnsetType = UNSET
    id: str | UnsetType = UNSET
    parts: "list[PartShape] | UnsetType" = UNSET
    scheduling: Extra = UNSET
    will_continue: Extra = UNSET


class CodeShape(Shape):
    language: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    id: str | UnsetType = UNSET


class CodeResultShape(Shape):
    outcome: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    id: str | UnsetType = UNSET


class HostedCallShape(Shape):
    id: str | UnsetType = UNSET
    tool_type: str | UnsetType = UNSET
    args: Raw | UnsetType = UNSET


class HostedResultShape(Shape):
    id: str | UnsetType = UNSET
    tool_type: str | UnsetType = UNSET
    response: Raw | UnsetType = UNSET


class PartShape(Shape):
    """One of the first nine fields says what it is; the others stand beside it."""

    text: str | UnsetType = UNSET
    inline_data: BlobShape | UnsetType = UNSET
    file_data: FileShape | UnsetType = UNSET
    function_call: CallShape | UnsetType = UNSET
    function_response: ResultShape | UnsetType = UNSET
    executable_code: CodeShape | UnsetType = UNSET
    code_execution_result: CodeResultShape | UnsetType = UNSET
    tool_call: HostedCallShape | UnsetType = UNSET
    tool_response: HostedResultShape | UnsetType = UNSET
    thought: bool | UnsetType = UNSET
    thought_signature: str | UnsetType = UNSET
    video_metadata: Extra = UNSET
    media_resolution: Extra = UNSET
    media_processing: Extra = UNSET
    part_metadata: Extra = UNSET
    audio_transcription: Extra = UNSET
    speech_metadata: Extra = UNSET


class ContentShape(Shape):
    parts: list[PartShape] | UnsetType = UNSET
    role: str | UnsetType = UNSET


class DeclarationShape(Shape):
    name: str
    description: str | UnsetType = UNSET
    parameters: Raw | UnsetType = UNSET
    parameters_json_schema: Raw | UnsetType = UNSET
    response: Raw | UnsetType = UNSET
    response_json_schema: Raw | UnsetType = UNSET
    behavior: str | UnsetType = UNSET


class CallingShape(Shape):
    mode: str | UnsetType = UNSET
    allowed_function_names: list[str] | UnsetType = UNSET
    stream_function_call_arguments: Extra = UNSET


class ToolConfigShape(Shape):
    function_calling_config: CallingShape | UnsetType = UNSET
    retrieval_config: Extra = UNSET
    include_server_side_tool_invocations: Extra = UNSET


class ThinkingShape(Shape):
    include_thoughts: bool | UnsetType = UNSET
    thinking_budget: int | UnsetType = UNSET
    thinking_level: str | UnsetType = UNSET


class GenerationShape(Shape):
    temperature: int | float | UnsetType = UNSET
    top_p: int | float | UnsetType = UNSET
    top_k: int | float | UnsetType = UNSET
    candidate_count: int | UnsetType = UNSET
    max_output_tokens: int | UnsetType = UNSET
    stop_sequences: list[str] | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    presence_penalty: int | float | UnsetType = UNSET
    frequency_penalty: int | float | UnsetType = UNSET
    response_logprobs: bool | UnsetType = UNSET
    logprobs: int | UnsetType = UNSET
    response_mime_type: str | UnsetType = UNSET
    response_schema: Raw | UnsetType = UNSET
    response_json_schema: Raw | UnsetType = UNSET
    thinking_config: ThinkingShape | UnsetType = UNSET
    response_format: Extra = UNSET
    response_modalities: Extra = UNSET
    media_resolution: Extra = UNSET
    speech_config: Extra = UNSET
    image_config: Extra = UNSET
    enable_enhanced_civic_answers: Extra = UNSET
    audio_transcription_config: Extra = UNSET
    translation_config: Extra = UNSET


class RequestShape(Shape):
    contents: list[ContentShape | str] | ContentShape | str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    generation_config: GenerationShape | UnsetType = UNSET
    system_instruction: ContentShape | str | UnsetType = UNSET
    tools: list[dict[str, Raw]] | dict[str, Raw] | UnsetType = UNSET
    tool_config: ToolConfigShape | UnsetType = UNSET
    cached_content: str | UnsetType = UNSET
    labels: Raw | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    store: bool | UnsetType = UNSET
    safety_settings: Extra = UNSET
    continuation_token: Extra = UNSET
    model_armor_config: Extra = UNSET
    generation_output_config: Extra = UNSET


class PlainCallShape(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    args: Raw
    id: str | UnsetType = UNSET


class TextOutputShape(Struct, forbid_unknown_fields=True, gc=False):
    output: str


class PlainResultShape(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    response: TextOutputShape
    id: str | UnsetType = UNSET


class PlainPartShape(Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    text: str | UnsetType = UNSET
    function_call: PlainCallShape | UnsetType = UNSET
    function_response: PlainResultShape | UnsetType = UNSET
    thought_signature: str | UnsetType = UNSET


class PlainContentShape(Struct, forbid_unknown_fields=True, gc=False):
    parts: list[PlainPartShape]
    role: Literal["user", "model"]


class PlainRequestShape(RequestShape):
    """A request in which every content is what nearly all are."""

    contents: list[PlainContentShape]  # type: ignore[assignment]


class ConfigShape(GenerationShape):
    """The SDKs write all settings into one object, and send them apart."""

    system_instruction: ContentShape | str | UnsetType = UNSET
    tools: list[dict[str, Raw]] | dict[str, Raw] | UnsetType = UNSET
    tool_config: ToolConfigShape | UnsetType = UNSET
    cached_content: str | UnsetType = UNSET
    labels: Raw | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    store: bool | UnsetType = UNSET
    safety_settings: Extra = UNSET
    continuation_token: Extra = UNSET
    model_armor_config: Extra = UNSET
    generation_output_config: Extra = UNSET


class SdkShape(Shape):
    config: ConfigShape
    contents: list[ContentShape | str] | ContentShape | str | UnsetType = UNSET
    model: str | UnsetType = UNSET


class UsageShape(Shape):
    prompt_token_count: int | UnsetType = UNSET
    cached_content_token_count: int | UnsetType = UNSET
    candidates_token_count: int | UnsetType = UNSET
    thoughts_token_count: int | UnsetType = UNSET
    tool_use_prompt_token_count: int | UnsetType = UNSET
    total_token_count: int | UnsetType = UNSET
    prompt_tokens_details: Extra = UNSET
    cache_tokens_details: Extra = UNSET
    candidates_tokens_details: Extra = UNSET
    tool_use_prompt_tokens_details: Extra = UNSET
    traffic_type: Extra = UNSET
    service_tier: Extra = UNSET


class CandidateShape(Shape):
    content: ContentShape | UnsetType = UNSET
    finish_reason: str | int | UnsetType = UNSET
    index: int | UnsetType = UNSET
    finish_message: Extra = UNSET
    safety_ratings: Extra = UNSET
    citation_metadata: Extra = UNSET
    grounding_metadata: Extra = UNSET
    url_context_metadata: Extra = UNSET
    avg_logprobs: Extra = UNSET
    logprobs_result: Extra = UNSET
    token_count: Extra = UNSET
    continuation_token: Extra = UNSET


class FeedbackShape(Shape):
    block_reason: str | UnsetType = UNSET
    block_reason_message: Extra = UNSET
    safety_ratings: Extra = UNSET


class ResponseShape(Shape):
    candidates: list[CandidateShape] | UnsetType = UNSET
    prompt_feedback: FeedbackShape | UnsetType = UNSET
    usage_metadata: UsageShape | UnsetType = UNSET
    model_version: str | UnsetType = UNSET
    response_id: str | UnsetType = UNSET
    create_time: str | UnsetType = UNSET
    model_status: Extra = UNSET


class PlainTextShape(Struct, forbid_unknown_fields=True, gc=False):
    text: str


class PlainTextContentShape(Struct, forbid_unknown_fields=True, gc=False):
    parts: tuple[PlainTextShape]
    role: str = ""


class PlainTextCandidateShape(Struct, forbid_unknown_fields=True, gc=False):
    content: PlainTextContentShape
    index: int = 0


class MoreTextShape(Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    """A chunk that says some more of a text, and only what the chunks before it said of the answer."""

    candidates: tuple[PlainTextCandidateShape]
    usage_metadata: UsageShape | UnsetType = UNSET
    model_version: str = ""
    response_id: str = ""
    create_time: str = ""


class ErrorShape(Shape):
    code: int | UnsetType = UNSET
    message: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    details: Extra = UNSET
    errors: Extra = UNSET


class ErrorBodyShape(Shape):
    error: ErrorShape
