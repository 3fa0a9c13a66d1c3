"""Wire objects of the Interactions API."""

from msgspec import UNSET, Raw, UnsetType

from toolwire.codec.wire.reader import Extra, WireObject

FAMILY = "gemini-interactions"
ISSUER = "google"


# ---- content


class Content(WireObject, tag_field="type"):
    """Base of content objects."""


class TextContent(Content, tag="text"):
    """Text with annotations."""

    text: str
    annotations: list[Raw] | UnsetType = UNSET


class MediaContent(Content, tag_field="type"):
    """Base of media content."""

    data: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET


class ImageContent(MediaContent, tag="image"):
    """An image."""

    resolution: str | UnsetType = UNSET


class AudioContent(MediaContent, tag="audio"):
    """An audio recording."""

    channels: Extra = UNSET
    sample_rate: Extra = UNSET


class DocumentContent(MediaContent, tag="document"):
    """A document."""


class VideoContent(MediaContent, tag="video"):
    """A video."""

    name: str | UnsetType = UNSET
    resolution: str | UnsetType = UNSET
    processing: Extra = UNSET


ContentUnion = TextContent | ImageContent | AudioContent | DocumentContent | VideoContent


class AnnotationShape(WireObject):
    """An annotation of any type; indices count bytes of its text."""

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
    """Base of steps with a typed shape; other steps are decoded by name or stay opaque."""


class FunctionResult(Step, tag="function_result"):
    """The result of a client-side function."""

    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    signature: Extra = UNSET


InputUnion = TextContent | ImageContent | AudioContent | DocumentContent | VideoContent | FunctionResult


class UserInput(Step, tag="user_input"):
    """Input of the user."""

    content: str | list[InputUnion] | UnsetType = UNSET


class ModelOutput(Step, tag="model_output"):
    """Output of the model."""

    content: str | list[ContentUnion] | UnsetType = UNSET
    error: Extra = UNSET


class Thought(Step, tag="thought"):
    """A thought: a summary, a signature, or both."""

    summary: list[ContentUnion] | UnsetType = UNSET
    signature: str | UnsetType = UNSET


class FunctionCall(Step, tag="function_call"):
    """A call of a client-side function."""

    name: str
    id: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET
    signature: str | UnsetType = UNSET


StepUnion = UserInput | ModelOutput | Thought | FunctionCall | FunctionResult


class ServerCall(WireObject):
    """A call of a hosted tool, of any `*_call` type."""

    type: str
    id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    server_name: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    search_type: Extra = UNSET
    retrieval_type: Extra = UNSET


class ServerResult(WireObject):
    """The result of a hosted tool, of any `*_result` type."""

    type: str
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    server_name: str | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    signature: str | UnsetType = UNSET


# ---- tools


class FunctionShape(WireObject):
    """A function declaration."""

    type: str
    name: str
    description: str | UnsetType = UNSET
    parameters: Raw | UnsetType = UNSET


class AllowedShape(WireObject):
    """The tools that a tool choice allows, and its mode."""

    mode: str | UnsetType = UNSET
    tools: list[str] | UnsetType = UNSET


class ChoiceShape(WireObject):
    """A tool choice among named tools."""

    allowed_tools: AllowedShape | UnsetType = UNSET


# ---- requests


class GenerationShape(WireObject):
    """A `generation_config`."""

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
    """The text entry of `response_format`."""

    type: str
    mime_type: str | UnsetType = UNSET
    schema: Raw | UnsetType = UNSET


class RequestShape(WireObject):
    """A request."""

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


# ---- responses


class UsageShape(WireObject):
    """Token counts."""

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
    """An error."""

    code: str | int | UnsetType = UNSET
    message: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    details: Extra = UNSET


class ErrorBodyShape(WireObject):
    """An error body."""

    error: ErrorShape


class ResponseShape(WireObject):
    """An interaction."""

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
    """A piece of text."""

    text: str


class ArgumentsDelta(WireObject, tag_field="type", tag="arguments_delta"):
    """A piece of a call's arguments."""

    arguments: str


class AnnotationDelta(WireObject, tag_field="type", tag="text_annotation_delta"):
    """Annotations of a text."""

    annotations: list[Raw] | UnsetType = UNSET


class OldAnnotationDelta(WireObject, tag_field="type", tag="text_annotation"):
    """Annotations of a text, under an older type name."""

    annotations: list[Raw] | UnsetType = UNSET


class SummaryDelta(WireObject, tag_field="type", tag="thought_summary"):
    """A piece of a thought's summary."""

    content: ContentUnion | UnsetType = UNSET


class SignatureDelta(WireObject, tag_field="type", tag="thought_signature"):
    """The signature of a thought or call."""

    signature: str | UnsetType = UNSET


DeltaUnion = TextDelta | ArgumentsDelta | AnnotationDelta | OldAnnotationDelta | SummaryDelta | SignatureDelta


class Frame(WireObject, tag_field="event_type", kw_only=True):
    """Base of stream frames."""

    event_id: Extra = UNSET


class CreatedFrame(Frame, tag="interaction.created"):
    """The first frame: an interaction without steps."""

    interaction: ResponseShape


class StatusFrame(Frame, tag="interaction.status_update"):
    """A change of the interaction's status."""

    interaction_id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    usage: UsageShape | UnsetType = UNSET
    continuation_token: Extra = UNSET


class StartFrame(Frame, tag="step.start"):
    """The start of a step."""

    step: Raw
    index: int | UnsetType = UNSET


class DeltaFrame(Frame, tag="step.delta"):
    """One delta of a step."""

    delta: DeltaUnion
    index: int | UnsetType = UNSET
    metadata: Extra = UNSET


class StopFrame(Frame, tag="step.stop"):
    """The end of a step."""

    index: int | UnsetType = UNSET
    usage: Extra = UNSET
    step_usage: Extra = UNSET


class CompletedFrame(Frame, tag="interaction.completed"):
    """The last frame: the completed interaction."""

    interaction: ResponseShape


class ErrorFrame(Frame, tag="error"):
    """An error that ends the stream."""

    error: Raw


FrameUnion = CreatedFrame | StatusFrame | StartFrame | DeltaFrame | StopFrame | CompletedFrame | ErrorFrame
