"""The Interactions API's wire objects, as msgspec reads and writes them."""

from msgspec import UNSET, Raw, UnsetType

from toolwire.codec.wire.reader import Extra, WireObject

FAMILY = "gemini-interactions"
ISSUER = "google"


# ---- content


class Content(WireObject, tag_field="type"):
    """Any part of what is said, or of a result."""


class TextContent(Content, tag="text"):
    text: str
    annotations: list[Raw] | UnsetType = UNSET


class MediaContent(Content, tag_field="type"):
    data: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET


class ImageContent(MediaContent, tag="image"):
    resolution: str | UnsetType = UNSET


class AudioContent(MediaContent, tag="audio"):
    channels: Extra = UNSET
    sample_rate: Extra = UNSET


class DocumentContent(MediaContent, tag="document"):
    pass


class VideoContent(MediaContent, tag="video"):
    name: str | UnsetType = UNSET
    resolution: str | UnsetType = UNSET
    processing: Extra = UNSET


ContentUnion = TextContent | ImageContent | AudioContent | DocumentContent | VideoContent


class AnnotationShape(WireObject):
    """Annotations differ by type; what they have in common has a canonical home. Indices count bytes."""

    type: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    start_index: int | UnsetType = UNSET
    end_index: int | UnsetType = UNSET
    file_name: str | UnsetType = UNSET
    document_uri: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


# ---- steps


class Step(WireObject, tag_field="type"):
    """Any step that is read by shape. What Google's own tools did is read by name, all others are kept whole."""


class FunctionResult(Step, tag="function_result"):
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    signature: Extra = UNSET


InputUnion = TextContent | ImageContent | AudioContent | DocumentContent | VideoContent | FunctionResult


class UserInput(Step, tag="user_input"):
    content: str | list[InputUnion] | UnsetType = UNSET


class ModelOutput(Step, tag="model_output"):
    content: str | list[ContentUnion] | UnsetType = UNSET
    error: Extra = UNSET


class Thought(Step, tag="thought"):
    summary: list[ContentUnion] | UnsetType = UNSET
    signature: str | UnsetType = UNSET


class FunctionCall(Step, tag="function_call"):
    name: str
    id: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET
    signature: str | UnsetType = UNSET


StepUnion = UserInput | ModelOutput | Thought | FunctionCall | FunctionResult


class ServerCall(WireObject):
    """A call that Google ran itself, of any `*_call` type."""

    type: str
    id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    server_name: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    search_type: Extra = UNSET
    retrieval_type: Extra = UNSET


class ServerResult(WireObject):
    """What came of it, of any `*_result` type."""

    type: str
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    server_name: str | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    signature: str | UnsetType = UNSET


# ---- tools


class FunctionShape(WireObject):
    type: str
    name: str
    description: str | UnsetType = UNSET
    parameters: Raw | UnsetType = UNSET


class AllowedShape(WireObject):
    mode: str | UnsetType = UNSET
    tools: list[str] | UnsetType = UNSET


class ChoiceShape(WireObject):
    allowed_tools: AllowedShape | UnsetType = UNSET


# ---- requests


class GenerationShape(WireObject):
    max_output_tokens: int | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    stop_sequences: list[str] | UnsetType = UNSET
    temperature: int | float | UnsetType = UNSET
    top_p: int | float | UnsetType = UNSET
    thinking_level: str | UnsetType = UNSET
    thinking_summaries: str | UnsetType = UNSET
    tool_choice: str | ChoiceShape | UnsetType = UNSET
    speech_config: Extra = UNSET
    transcription_config: Extra = UNSET
    video_config: Extra = UNSET
    image_config: Extra = UNSET


class TextFormatShape(WireObject):
    type: str
    mime_type: str | UnsetType = UNSET
    schema: Raw | UnsetType = UNSET


class RequestShape(WireObject):
    model: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    input: Raw | UnsetType = UNSET
    system_instruction: str | UnsetType = UNSET
    tools: list[Raw] | UnsetType = UNSET
    generation_config: GenerationShape | UnsetType = UNSET
    response_format: Raw | UnsetType = UNSET
    response_mime_type: str | UnsetType = UNSET
    previous_interaction_id: str | UnsetType = UNSET
    store: bool | UnsetType = UNSET
    background: bool | UnsetType = UNSET
    stream: bool | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    labels: Raw | UnsetType = UNSET
    agent_config: Extra = UNSET
    response_modalities: Extra = UNSET
    cached_content: Extra = UNSET
    continuation_token: Extra = UNSET
    environment: Extra = UNSET
    safety_settings: Extra = UNSET
    webhook_config: Extra = UNSET


# ---- answers


class UsageShape(WireObject):
    total_input_tokens: int | UnsetType = UNSET
    total_output_tokens: int | UnsetType = UNSET
    total_thought_tokens: int | UnsetType = UNSET
    total_cached_tokens: int | UnsetType = UNSET
    total_tool_use_tokens: int | UnsetType = UNSET
    total_tokens: int | UnsetType = UNSET
    initial_input_tokens: Extra = UNSET
    input_tokens_by_modality: Extra = UNSET
    output_tokens_by_modality: Extra = UNSET
    cached_tokens_by_modality: Extra = UNSET
    tool_use_tokens_by_modality: Extra = UNSET
    grounding_tool_count: Extra = UNSET


class ErrorShape(WireObject):
    code: str | int | UnsetType = UNSET
    message: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    details: Extra = UNSET


class ErrorBodyShape(WireObject):
    error: ErrorShape


class ResponseShape(WireObject):
    id: str | UnsetType = UNSET
    object: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    created: str | UnsetType = UNSET
    steps: list[Raw] | UnsetType = UNSET
    usage: UsageShape | UnsetType = UNSET
    errors: list[ErrorShape] | UnsetType = UNSET
    updated: Extra = UNSET
    service_tier: Extra = UNSET
    previous_interaction_id: Extra = UNSET
    continuation_token: Extra = UNSET
    environment_id: Extra = UNSET
    input: Extra = UNSET
    tools: Extra = UNSET
    system_instruction: Extra = UNSET
    generation_config: Extra = UNSET
    response_format: Extra = UNSET
    labels: Extra = UNSET


# ---- frames of a stream


class TextDelta(WireObject, tag_field="type", tag="text"):
    text: str


class ArgumentsDelta(WireObject, tag_field="type", tag="arguments_delta"):
    arguments: str


class AnnotationDelta(WireObject, tag_field="type", tag="text_annotation_delta"):
    annotations: list[Raw] | UnsetType = UNSET


class OldAnnotationDelta(WireObject, tag_field="type", tag="text_annotation"):
    annotations: list[Raw] | UnsetType = UNSET


class SummaryDelta(WireObject, tag_field="type", tag="thought_summary"):
    content: ContentUnion | UnsetType = UNSET


class SignatureDelta(WireObject, tag_field="type", tag="thought_signature"):
    signature: str | UnsetType = UNSET


DeltaUnion = TextDelta | ArgumentsDelta | AnnotationDelta | OldAnnotationDelta | SummaryDelta | SignatureDelta


class Frame(WireObject, tag_field="event_type", kw_only=True):
    event_id: Extra = UNSET


class CreatedFrame(Frame, tag="interaction.created"):
    interaction: ResponseShape


class StatusFrame(Frame, tag="interaction.status_update"):
    interaction_id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    usage: UsageShape | UnsetType = UNSET
    continuation_token: Extra = UNSET


class StartFrame(Frame, tag="step.start"):
    step: Raw
    index: int | UnsetType = UNSET


class DeltaFrame(Frame, tag="step.delta"):
    delta: DeltaUnion
    index: int | UnsetType = UNSET
    metadata: Extra = UNSET


class StopFrame(Frame, tag="step.stop"):
    index: int | UnsetType = UNSET
    usage: Extra = UNSET
    step_usage: Extra = UNSET


class CompletedFrame(Frame, tag="interaction.completed"):
    interaction: ResponseShape


class ErrorFrame(Frame, tag="error"):
    error: Raw


FrameUnion = CreatedFrame | StatusFrame | StartFrame | DeltaFrame | StopFrame | CompletedFrame | ErrorFrame
