"""Wire objects of the Gemini API.

Attributes are the snake_case names, which the server accepts as well.
"""

from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.codec.wire.reader import Extra, WireObject

FAMILY = "gemini"
ISSUER = "google"
"""The issuer of thought signatures and stored files, in both of Google's protocols."""


class Shape(WireObject, rename="camel"):
    """Base of all wire objects. Servers write camelCase and read both; `FieldCase` handles snake_case."""


class BlobShape(Shape):
    """Inline data of a part."""

    mime_type: str | UnsetType = UNSET
    data: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET


class FileShape(Shape):
    """A reference to a file by URI."""

    file_uri: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET


class PartialArgumentShape(Shape):
    """One value of streamed arguments, or a piece of a string, with its JSON path."""

    json_path: str | UnsetType = UNSET
    string_value: str | UnsetType = UNSET
    number_value: Raw | UnsetType = UNSET
    bool_value: bool | UnsetType = UNSET
    null_value: Raw | UnsetType = UNSET
    will_continue: bool | UnsetType = UNSET


class CallShape(Shape):
    """A `functionCall`."""

    name: str | UnsetType = UNSET
    args: Raw | UnsetType = UNSET
    id: str | UnsetType = UNSET
    partial_args: Extra = UNSET
    will_continue: Extra = UNSET


class ResultShape(Shape):
    """A `functionResponse`."""

    name: str | UnsetType = UNSET
    response: Raw | UnsetType = UNSET
    id: str | UnsetType = UNSET
    parts: "list[PartShape] | UnsetType" = UNSET
    scheduling: Extra = UNSET
    will_continue: Extra = UNSET


class CodeShape(Shape):
    """An `executableCode`."""

    language: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    id: str | UnsetType = UNSET


class CodeResultShape(Shape):
    """A `codeExecutionResult`."""

    outcome: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    id: str | UnsetType = UNSET


class HostedCallShape(Shape):
    """A `toolCall`: a call of a hosted tool."""

    id: str | UnsetType = UNSET
    tool_type: str | UnsetType = UNSET
    args: Raw | UnsetType = UNSET


class HostedResultShape(Shape):
    """A `toolResponse`: the result of a hosted tool."""

    id: str | UnsetType = UNSET
    tool_type: str | UnsetType = UNSET
    response: Raw | UnsetType = UNSET


class PartShape(Shape):
    """One part of a content: exactly one of the first nine fields is set, and the others describe it."""

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
    """A message: its role and parts."""

    parts: list[PartShape] | UnsetType = UNSET
    role: str | UnsetType = UNSET


class DeclarationShape(Shape):
    """A function declaration."""

    name: str
    description: str | UnsetType = UNSET
    parameters: Raw | UnsetType = UNSET
    parameters_json_schema: Raw | UnsetType = UNSET
    response: Raw | UnsetType = UNSET
    response_json_schema: Raw | UnsetType = UNSET
    behavior: str | UnsetType = UNSET


class CallingShape(Shape):
    """A `functionCallingConfig`."""

    mode: str | UnsetType = UNSET
    allowed_function_names: list[str] | UnsetType = UNSET
    stream_function_call_arguments: Extra = UNSET


class ToolConfigShape(Shape):
    """A `toolConfig`."""

    function_calling_config: CallingShape | UnsetType = UNSET
    retrieval_config: Extra = UNSET
    include_server_side_tool_invocations: Extra = UNSET


class ThinkingShape(Shape):
    """A `thinkingConfig`."""

    include_thoughts: bool | UnsetType = UNSET
    thinking_budget: int | UnsetType = UNSET
    thinking_level: str | UnsetType = UNSET


class GenerationShape(Shape):
    """A `generationConfig`."""

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
    """A `generateContent` request."""

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


class ConfigShape(GenerationShape):
    """The `config` object in which the SDKs collect all settings before they send them."""

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
    """A request as the SDKs take it, with all settings in `config`."""

    config: ConfigShape
    contents: list[ContentShape | str] | ContentShape | str | UnsetType = UNSET
    model: str | UnsetType = UNSET


class UsageShape(Shape):
    """A `usageMetadata`."""

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
    """One candidate of a response or chunk."""

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
    """A `promptFeedback`."""

    block_reason: str | UnsetType = UNSET
    block_reason_message: Extra = UNSET
    safety_ratings: Extra = UNSET


class ResponseShape(Shape):
    """A response, or one chunk of a stream."""

    candidates: list[CandidateShape] | UnsetType = UNSET
    prompt_feedback: FeedbackShape | UnsetType = UNSET
    usage_metadata: UsageShape | UnsetType = UNSET
    model_version: str | UnsetType = UNSET
    response_id: str | UnsetType = UNSET
    create_time: str | UnsetType = UNSET
    model_status: Extra = UNSET


class PlainTextShape(Struct, forbid_unknown_fields=True, gc=False):
    """A part of text alone."""

    text: str


class PlainTextContentShape(Struct, forbid_unknown_fields=True, gc=False):
    """A content of one text part."""

    parts: tuple[PlainTextShape]
    role: str = ""


class PlainTextCandidateShape(Struct, forbid_unknown_fields=True, gc=False):
    """A candidate of one text part."""

    content: PlainTextContentShape
    index: int = 0


class MoreTextShape(Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    """A chunk that only continues the text of one candidate, with metadata that repeats."""

    candidates: tuple[PlainTextCandidateShape]
    usage_metadata: UsageShape | UnsetType = UNSET
    model_version: str = ""
    response_id: str = ""
    create_time: str = ""


class ErrorShape(Shape):
    """A `google.rpc.Status`."""

    code: int | UnsetType = UNSET
    message: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    details: Extra = UNSET
    errors: Extra = UNSET


class ErrorBodyShape(Shape):
    """An error body."""

    error: ErrorShape
