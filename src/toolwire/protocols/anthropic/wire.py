"""Wire objects of Anthropic Messages, as msgspec structs."""

from msgspec import UNSET, Raw, UnsetType

from toolwire.codec.wire.reader import Extra, WireObject

FAMILY = "anthropic"


class Block(WireObject, tag_field="type"):
    """Any content block."""


class CacheShape(WireObject):
    """`cache_control`: the end of a cached prefix."""

    type: str
    ttl: str | UnsetType = UNSET


class CallerShape(WireObject):
    """`caller` of a tool call: the model itself, or a program that it runs."""

    type: str
    tool_id: str | UnsetType = UNSET


class SourceShape(WireObject):
    """The source of an image or document."""

    type: str
    media_type: str | UnsetType = UNSET
    data: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET
    content: "str | list[BlockUnion] | UnsetType" = UNSET


class TextBlock(Block, tag="text"):
    """Text, with citations in responses."""

    text: str
    citations: list[Raw] | UnsetType | None = UNSET
    cache_control: CacheShape | UnsetType = UNSET


class CitationShape(WireObject):
    """Fields that all types of citations share; the others become extras."""

    url: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    cited_text: str | UnsetType = UNSET


class ImageBlock(Block, tag="image"):
    """An image."""

    source: SourceShape
    cache_control: CacheShape | UnsetType = UNSET
    transformations: Extra = UNSET


class DocumentBlock(Block, tag="document"):
    """A document."""

    source: SourceShape
    title: str | UnsetType | None = UNSET
    context: Extra = UNSET
    citations: Extra = UNSET
    cache_control: CacheShape | UnsetType = UNSET


class ThinkingBlock(Block, tag="thinking"):
    """Thinking with its signature."""

    thinking: str
    signature: str | UnsetType = UNSET


class RedactedBlock(Block, tag="redacted_thinking"):
    """Encrypted thinking."""

    data: str


class ToolUseBlock(Block, tag="tool_use"):
    """A call of a tool that the client runs."""

    id: str
    name: str
    input: Raw | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET
    toolset_name: str | UnsetType = UNSET
    cache_control: CacheShape | UnsetType = UNSET


class ServerToolUseBlock(ToolUseBlock, tag="server_tool_use"):
    """A call of a tool that Anthropic runs."""


class ToolResultBlock(Block, tag="tool_result"):
    """The client's result of a tool call."""

    tool_use_id: str
    content: "str | list[BlockUnion] | UnsetType" = UNSET
    is_error: bool | UnsetType = UNSET
    toolset_name: str | UnsetType = UNSET
    cache_control: CacheShape | UnsetType = UNSET


class ToolReferenceBlock(Block, tag="tool_reference"):
    """A deferred tool that a tool search found."""

    tool_name: str
    cache_control: CacheShape | UnsetType = UNSET


BlockUnion = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | ThinkingBlock
    | RedactedBlock
    | ToolUseBlock
    | ServerToolUseBlock
    | ToolResultBlock
    | ToolReferenceBlock
)


class McpUseShape(WireObject):
    """`mcp_tool_use`: a call that the MCP connector made."""

    type: str
    id: str
    name: str
    server_name: str
    input: Raw
    cache_control: CacheShape | UnsetType = UNSET


class ServerResultShape(WireObject):
    """The result of a tool that the provider ran. Only the provider interprets its content."""

    type: str
    tool_use_id: str
    content: Raw | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET
    cache_control: CacheShape | UnsetType = UNSET


class ChangeShape(WireObject):
    """`tool_addition` or `tool_removal` within a conversation."""

    type: str
    tool: Raw


class ReferenceShape(WireObject):
    """The tool of a change: a reference or a definition."""

    type: str
    name: str | UnsetType = UNSET
    server_name: str | UnsetType = UNSET
    definition: Raw | UnsetType = UNSET


class FormatShape(WireObject):
    """`output_config.format`: structured output."""

    type: str
    schema: Raw


class SettingsShape(WireObject):
    """`output_config` of a request or of a system message."""

    effort: str | UnsetType = UNSET
    format: FormatShape | UnsetType = UNSET
    task_budget: Extra = UNSET


class MessageShape(WireObject):
    """A message of the conversation."""

    role: str
    content: str | list[BlockUnion] | UnsetType = UNSET
    clear_at: str | UnsetType = UNSET
    output_config: SettingsShape | UnsetType = UNSET


class ThinkingShape(WireObject):
    """`thinking` of a request."""

    type: str
    budget_tokens: int | UnsetType = UNSET
    display: str | UnsetType = UNSET


class ChoiceShape(WireObject):
    """`tool_choice`."""

    type: str
    name: str | UnsetType = UNSET
    disable_parallel_tool_use: bool | UnsetType = UNSET


class MetadataShape(WireObject):
    """`metadata` of a request."""

    user_id: str | UnsetType = UNSET


class ToolShape(WireObject):
    """A tool that the client defines. Native tools are distinguished by their `type` and kept as JSON."""

    name: str
    input_schema: Raw
    type: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    strict: bool | UnsetType = UNSET
    defer_loading: bool | UnsetType = UNSET
    allowed_callers: list[str] | UnsetType = UNSET
    cache_control: CacheShape | UnsetType = UNSET
    eager_input_streaming: Extra = UNSET
    input_examples: Extra = UNSET


class RequestShape(WireObject):
    """The body of `POST /v1/messages`."""

    messages: list[MessageShape] | UnsetType = UNSET
    model: str | UnsetType = UNSET
    max_tokens: int | UnsetType = UNSET
    system: str | list[BlockUnion] | UnsetType = UNSET
    tools: list[Raw] | UnsetType = UNSET
    tool_choice: ChoiceShape | UnsetType = UNSET
    stop_sequences: list[str] | UnsetType = UNSET
    stream: bool | UnsetType = UNSET
    thinking: ThinkingShape | UnsetType = UNSET
    output_config: SettingsShape | UnsetType = UNSET
    cache_control: CacheShape | UnsetType = UNSET
    metadata: MetadataShape | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    temperature: int | float | UnsetType = UNSET
    top_p: int | float | UnsetType = UNSET
    top_k: int | UnsetType = UNSET
    container: Extra = UNSET
    context_management: Extra = UNSET
    mcp_servers: Extra = UNSET


class UsageDetailsShape(WireObject):
    """`output_tokens_details` of the usage."""

    thinking_tokens: int | UnsetType = UNSET


class UsageShape(WireObject):
    """Token counts."""

    input_tokens: int | UnsetType | None = UNSET
    output_tokens: int | UnsetType | None = UNSET
    cache_creation_input_tokens: int | UnsetType | None = UNSET
    cache_read_input_tokens: int | UnsetType | None = UNSET
    output_tokens_details: UsageDetailsShape | UnsetType | None = UNSET
    cache_creation: Extra = UNSET
    server_tool_use: Extra = UNSET
    service_tier: Extra = UNSET
    inference_geo: Extra = UNSET


class ResponseShape(WireObject):
    """A response, or the message of `message_start`."""

    content: list[BlockUnion]
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    role: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    stop_reason: str | UnsetType | None = UNSET
    stop_sequence: str | UnsetType | None = UNSET
    usage: UsageShape | UnsetType = UNSET
    stop_details: Extra = UNSET
    container: Extra = UNSET
    context_management: Extra = UNSET
    diagnostics: Extra = UNSET


class ErrorShape(WireObject):
    """`error` of an error body."""

    type: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    details: Extra = UNSET


class ErrorBodyShape(WireObject):
    """An error body."""

    error: ErrorShape
    type: str | UnsetType = UNSET
    request_id: str | UnsetType | None = UNSET


class Frame(WireObject, tag_field="type"):
    """Any event of the stream."""


class MessageStartFrame(Frame, tag="message_start"):
    """The start of a response."""

    message: ResponseShape


class BlockStartFrame(Frame, tag="content_block_start"):
    """The start of a content block."""

    content_block: BlockUnion
    index: int | UnsetType = UNSET


class Delta(WireObject, tag_field="type"):
    """Any delta of a content block."""


class TextDelta(Delta, tag="text_delta"):
    """More text."""

    text: str


class InputDelta(Delta, tag="input_json_delta"):
    """More of a tool call's input, as JSON text."""

    partial_json: str


class ThinkingDelta(Delta, tag="thinking_delta"):
    """More thinking."""

    thinking: str


class SignatureDelta(Delta, tag="signature_delta"):
    """The signature of a thinking block."""

    signature: str


class CitationsDelta(Delta, tag="citations_delta"):
    """A citation of a text block."""

    citation: Raw


class CompactionDelta(Delta, tag="compaction_delta"):
    """The complete content of a compaction block."""

    content: Raw | UnsetType = UNSET
    encrypted_content: Raw | UnsetType = UNSET


class BlockDeltaFrame(Frame, tag="content_block_delta"):
    """A delta of a content block."""

    delta: TextDelta | InputDelta | ThinkingDelta | SignatureDelta | CitationsDelta | CompactionDelta
    index: int | UnsetType = UNSET


class BlockStopFrame(Frame, tag="content_block_stop"):
    """The end of a content block."""

    index: int | UnsetType = UNSET


class MessageEndShape(WireObject):
    """`delta` of a `message_delta` frame."""

    stop_reason: str | UnsetType | None = UNSET
    stop_sequence: str | UnsetType | None = UNSET


class MessageDeltaFrame(Frame, tag="message_delta"):
    """Stop reason and final usage."""

    delta: MessageEndShape
    usage: UsageShape | UnsetType = UNSET


class MessageStopFrame(Frame, tag="message_stop"):
    """The end of a response."""


class PingFrame(Frame, tag="ping"):
    """A keep-alive frame."""


class ErrorFrame(Frame, tag="error"):
    """An error that ends the stream."""

    error: Raw


FrameUnion = (
    BlockDeltaFrame
    | BlockStartFrame
    | BlockStopFrame
    | MessageStartFrame
    | MessageDeltaFrame
    | MessageStopFrame
    | PingFrame
    | ErrorFrame
)
