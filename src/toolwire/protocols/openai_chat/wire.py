"""Wire objects of Chat Completions, as msgspec structs; they include fields of compatible servers."""

from msgspec import UNSET, Raw, UnsetType

from toolwire.codec.wire.reader import Extra, WireObject

FAMILY = "openai-chat"
SHARED_FAMILY = "openai"
"""Family of the fields that Chat and Responses share, and of file ids, which both accept."""


class ContentPart(WireObject, tag_field="type"):
    """Any part of a content list."""


class BreakpointShape(WireObject):
    """`prompt_cache_breakpoint`: the end of a cached prefix."""

    mode: str | UnsetType = UNSET
    ttl: str | UnsetType = UNSET


class TextPart(ContentPart, tag="text"):
    """Text."""

    text: str
    prompt_cache_breakpoint: BreakpointShape | UnsetType = UNSET


class ImageShape(WireObject):
    """The URL of an image and its detail."""

    url: str
    detail: str | UnsetType = UNSET


class ImagePart(ContentPart, tag="image_url"):
    """An image."""

    image_url: ImageShape | str
    prompt_cache_breakpoint: BreakpointShape | UnsetType = UNSET


class VideoShape(WireObject):
    """The URL of a video."""

    url: str


class VideoPart(ContentPart, tag="video_url"):
    """A video, supported by OpenRouter and compatible servers."""

    video_url: VideoShape | str
    prompt_cache_breakpoint: BreakpointShape | UnsetType = UNSET


class AudioShape(WireObject):
    """Audio as base64."""

    data: str
    format: str | UnsetType = UNSET


class AudioPart(ContentPart, tag="input_audio"):
    """Audio input."""

    input_audio: AudioShape
    prompt_cache_breakpoint: BreakpointShape | UnsetType = UNSET


class FileShape(WireObject):
    """A file by id or by content."""

    file_id: str | UnsetType = UNSET
    file_data: str | UnsetType = UNSET
    filename: str | UnsetType = UNSET


class FilePart(ContentPart, tag="file"):
    """A file."""

    file: FileShape
    prompt_cache_breakpoint: BreakpointShape | UnsetType = UNSET


class RefusalPart(ContentPart, tag="refusal"):
    """A refusal inside a content list."""

    refusal: str


class ThinkingPart(ContentPart, tag="thinking"):
    """Mistral's reasoning, which is part of the content."""

    thinking: "str | list[PartUnion]"


PartUnion = TextPart | ImagePart | VideoPart | AudioPart | FilePart | RefusalPart | ThinkingPart


class FunctionCallShape(WireObject):
    """Name and arguments of a call. A server may send an object as `arguments`, which is read into `unknown`."""

    name: str | UnsetType | None = UNSET
    arguments: str | UnsetType | None = UNSET


class CustomCallShape(WireObject):
    """Name and free-form input of a call."""

    name: str | UnsetType | None = UNSET
    input: str | UnsetType | None = UNSET


class CallShape(WireObject):
    """An entry of `tool_calls`."""

    id: str | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET
    function: FunctionCallShape | UnsetType | None = UNSET
    custom: CustomCallShape | UnsetType | None = UNSET
    index: Extra = UNSET


class MessageShape(WireObject):
    """A message of a request or response. Compatible servers add `reasoning_content` or `reasoning`."""

    role: str
    content: str | list[PartUnion] | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET
    tool_call_id: str | UnsetType | None = UNSET
    tool_calls: list[CallShape] | UnsetType | None = UNSET
    function_call: FunctionCallShape | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    annotations: list[Raw] | UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    audio: Extra = UNSET


class UrlCitationShape(WireObject):
    """A cited page. OpenRouter adds its text as `content`."""

    url: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    start_index: int | UnsetType = UNSET
    end_index: int | UnsetType = UNSET


class CitationShape(WireObject):
    """An entry of `annotations`."""

    type: str | UnsetType = UNSET
    url_citation: UrlCitationShape | UnsetType = UNSET


class FunctionShape(WireObject):
    """The function of a tool declaration."""

    name: str
    description: str | UnsetType | None = UNSET
    parameters: Raw | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET


class FunctionToolShape(WireObject):
    """A function tool."""

    function: FunctionShape
    type: str | UnsetType = UNSET


class GrammarShape(WireObject):
    """The grammar of a custom tool's input."""

    syntax: str
    definition: str


class FormatShape(WireObject):
    """The input format of a custom tool."""

    type: str | UnsetType = UNSET
    grammar: GrammarShape | UnsetType = UNSET


class CustomShape(WireObject):
    """The custom tool of a tool declaration."""

    name: str
    description: str | UnsetType | None = UNSET
    format: FormatShape | UnsetType = UNSET


class CustomToolShape(WireObject):
    """A custom tool with free-form input."""

    custom: CustomShape
    type: str | UnsetType = UNSET


class NamedToolShape(WireObject):
    """The name of a tool."""

    name: str


class ReferenceShape(WireObject):
    """A tool by name, in a tool choice."""

    type: str | UnsetType = UNSET
    function: NamedToolShape | UnsetType = UNSET
    custom: NamedToolShape | UnsetType = UNSET


class AllowedToolsShape(WireObject):
    """The tools that a choice allows."""

    tools: list[ReferenceShape]
    mode: str | UnsetType = UNSET


class ChoiceShape(ReferenceShape):
    """A `tool_choice` that is an object."""

    allowed_tools: AllowedToolsShape | UnsetType = UNSET


class JsonSchemaShape(WireObject):
    """`response_format.json_schema`."""

    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    schema: Raw | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET


class ResponseFormatShape(WireObject):
    """`response_format`."""

    type: str | UnsetType = UNSET
    json_schema: JsonSchemaShape | UnsetType = UNSET


class StreamOptionsShape(WireObject):
    """`stream_options`."""

    include_usage: bool | UnsetType = UNSET
    include_obfuscation: Extra = UNSET


class RequestShape(WireObject):
    """The body of `POST /v1/chat/completions`."""

    messages: list[MessageShape] | UnsetType = UNSET
    model: str | UnsetType = UNSET
    tools: list[Raw] | UnsetType | None = UNSET
    tool_choice: Raw | UnsetType = UNSET
    parallel_tool_calls: bool | UnsetType | None = UNSET
    functions: list[Raw] | UnsetType | None = UNSET
    function_call: Raw | UnsetType = UNSET
    max_completion_tokens: int | UnsetType | None = UNSET
    max_tokens: int | UnsetType | None = UNSET
    temperature: int | float | UnsetType | None = UNSET
    top_p: int | float | UnsetType | None = UNSET
    top_k: int | UnsetType | None = UNSET
    frequency_penalty: int | float | UnsetType | None = UNSET
    presence_penalty: int | float | UnsetType | None = UNSET
    seed: int | UnsetType | None = UNSET
    n: int | UnsetType | None = UNSET
    logprobs: bool | UnsetType | None = UNSET
    top_logprobs: int | UnsetType | None = UNSET
    stop: str | list[str] | UnsetType | None = UNSET
    response_format: ResponseFormatShape | UnsetType | None = UNSET
    reasoning_effort: str | UnsetType | None = UNSET
    verbosity: str | UnsetType | None = UNSET
    stream: bool | UnsetType | None = UNSET
    stream_options: StreamOptionsShape | UnsetType | None = UNSET
    store: bool | UnsetType | None = UNSET
    metadata: Raw | UnsetType = UNSET
    service_tier: str | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET
    audio: Extra = UNSET
    logit_bias: Extra = UNSET
    modalities: Extra = UNSET
    moderation: Extra = UNSET
    prediction: Extra = UNSET
    prompt_cache_key: Extra = UNSET
    prompt_cache_options: Extra = UNSET
    prompt_cache_retention: Extra = UNSET
    safety_identifier: Extra = UNSET
    web_search_options: Extra = UNSET


class PromptDetailsShape(WireObject):
    """`prompt_tokens_details` of the usage."""

    cached_tokens: int | UnsetType | None = UNSET
    cache_write_tokens: int | UnsetType | None = UNSET
    audio_tokens: Extra = UNSET


class CompletionDetailsShape(WireObject):
    """`completion_tokens_details` of the usage."""

    reasoning_tokens: int | UnsetType | None = UNSET
    accepted_prediction_tokens: Extra = UNSET
    audio_tokens: Extra = UNSET
    rejected_prediction_tokens: Extra = UNSET


class UsageShape(WireObject):
    """Token counts."""

    prompt_tokens: int | UnsetType | None = UNSET
    completion_tokens: int | UnsetType | None = UNSET
    total_tokens: int | UnsetType | None = UNSET
    prompt_tokens_details: PromptDetailsShape | UnsetType | None = UNSET
    completion_tokens_details: CompletionDetailsShape | UnsetType | None = UNSET
    prompt_cache_hit_tokens: Extra = UNSET
    prompt_cache_miss_tokens: Extra = UNSET


class ResponseChoiceShape(WireObject):
    """An entry of `choices` of a response."""

    message: MessageShape
    index: int | UnsetType = UNSET
    finish_reason: str | UnsetType | None = UNSET
    logprobs: Extra = UNSET
    error: Extra = UNSET
    stop_reason: Extra = UNSET
    token_ids: Extra = UNSET


class ResponseShape(WireObject):
    """A response body."""

    choices: list[ResponseChoiceShape] | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    object: str | UnsetType | None = UNSET
    created: int | float | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    usage: UsageShape | UnsetType | None = UNSET
    error: Raw | UnsetType = UNSET
    service_tier: Extra = UNSET
    system_fingerprint: Extra = UNSET
    prompt_logprobs: Extra = UNSET
    prompt_token_ids: Extra = UNSET
    kv_transfer_params: Extra = UNSET
    timings: Extra = UNSET


class ErrorShape(WireObject):
    """The value of `error`."""

    message: str | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET
    param: str | UnsetType | None = UNSET
    code: str | int | UnsetType | None = UNSET
    misalignment: Extra = UNSET


class FragmentShape(WireObject):
    """A fragment of a tool call in a stream."""

    index: int | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET
    function: FunctionCallShape | UnsetType | None = UNSET
    custom: CustomCallShape | UnsetType | None = UNSET


class DeltaShape(WireObject):
    """`delta` of a chunk's choice."""

    content: str | list[PartUnion] | UnsetType | None = UNSET
    tool_calls: list[FragmentShape] | UnsetType | None = UNSET
    role: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    function_call: FunctionCallShape | UnsetType | None = UNSET
    annotations: list[Raw] | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET


class StreamChoiceShape(WireObject):
    """An entry of `choices` of a chunk."""

    delta: DeltaShape | UnsetType | None = UNSET
    index: int | UnsetType = UNSET
    finish_reason: str | UnsetType | None = UNSET
    logprobs: Extra = UNSET
    native_finish_reason: Extra = UNSET  # OpenRouter
    stop_reason: Extra = UNSET  # vLLM, as the next one
    token_ids: Extra = UNSET


class ChunkShape(WireObject):
    """A chunk of a stream."""

    choices: list[StreamChoiceShape] | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    object: str | UnsetType | None = UNSET
    created: int | float | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    usage: UsageShape | UnsetType | None = UNSET
    error: Raw | UnsetType = UNSET
    # Random padding that hides the length of the text.
    obfuscation: str | UnsetType | None = UNSET
    service_tier: Extra = UNSET
    system_fingerprint: Extra = UNSET
    provider: Extra = UNSET
