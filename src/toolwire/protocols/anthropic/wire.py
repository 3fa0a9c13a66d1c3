"""Anthropic's wire objects, as msgspec reads and writes them."""

from msgspec import UNSET, Raw, UnsetType

from toolwire.codec.wire.reader import Extra, WireObject

FAMILY = "anthropic"


class Block(WireObject, tag_field="type"):
    """Any content block."""


class CacheShape(WireObject):
    type: str
    ttl: str | UnsetType = UNSET


class CallerShape(WireObject):
    type: str
    tool_id: str | UnsetType = UNSET


class SourceShape(WireObject):
    type: str
    media_type: str | UnsetType = UNSET
    data: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET
    content: "str | list[BlockUnion] | UnsetType" = UNSET


class TextBlock(Block, tag="text"):
    text: str
    citations: list[Raw] | UnsetType | None = UNSET
    cache_control: CacheShape | UnsetType = UNSET


class CitationShape(WireObject):
    """Citations differ by type; what they have in common has a canonical home."""

    url: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    cited_text: str | UnsetType = UNSET


class ImageBlock(Block, tag="image"):
    source: SourceShape
    cache_control: CacheShape | UnsetType = UNSET
    transformations: Extra = UNSET


class DocumentBlock(Block, tag="document"):
    source: SourceShape
    title: str | UnsetType | None = UNSET
    context: Extra = UNSET
    citations: Extra = UNSET
    cache_control: CacheShape | UnsetType = UNSET


class ThinkingBlock(Block, tag="thinking"):
    thinking: str
    signature: str | UnsetType = UNSET


class RedactedBlock(Block, tag="redacted_thinking"):
    data: str


class ToolUseBlock(Block, tag="tool_use"):
    id: str
    name: str
    input: Raw | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET
    toolset_name: str | UnsetType = UNSET
    cache_control: CacheShape | UnsetType = UNSET


class ServerToolUseBlock(ToolUseBlock, tag="server_tool_use"):
    pass


class ToolResultBlock(Block, tag="tool_result"):
    tool_use_id: str
    content: "str | list[BlockUnion] | UnsetType" = UNSET
    is_error: bool | UnsetType = UNSET
    toolset_name: str | UnsetType = UNSET
    cache_control: CacheShape | UnsetType = UNSET


class ToolReferenceBlock(Block, tag="tool_reference"):
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
    type: str
    id: str
    name: str
    server_name: str
    input: Raw
    cache_control: CacheShape | UnsetType = UNSET


class ServerResultShape(WireObject):
    """What the provider got from a tool that it ran itself. Its content is for the provider alone to read again."""

    type: str
    tool_use_id: str
    content: Raw | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    caller: CallerShape | UnsetType = UNSET
    cache_control: CacheShape | UnsetType = UNSET


class ChangeShape(WireObject):
    type: str
    tool: Raw


class ReferenceShape(WireObject):
    type: str
    name: str | UnsetType = UNSET
    server_name: str | UnsetType = UNSET
    definition: Raw | UnsetType = UNSET


class FormatShape(WireObject):
    type: str
    schema: Raw


class SettingsShape(WireObject):
    """`output_config`, of a request or of one system message."""

    effort: str | UnsetType = UNSET
    format: FormatShape | UnsetType = UNSET
    task_budget: Extra = UNSET


class MessageShape(WireObject):
    role: str
    content: str | list[BlockUnion] | UnsetType = UNSET
    clear_at: str | UnsetType = UNSET
    output_config: SettingsShape | UnsetType = UNSET


class ThinkingShape(WireObject):
    type: str
    budget_tokens: int | UnsetType = UNSET
    display: str | UnsetType = UNSET


class ChoiceShape(WireObject):
    type: str
    name: str | UnsetType = UNSET
    disable_parallel_tool_use: bool | UnsetType = UNSET


class MetadataShape(WireObject):
    user_id: str | UnsetType = UNSET


class ToolShape(WireObject):
    """A tool of the user's. All others are the vendor's own, told apart by their `type`."""

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
    thinking_tokens: int | UnsetType = UNSET


class UsageShape(WireObject):
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
    type: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    details: Extra = UNSET


class ErrorBodyShape(WireObject):
    error: ErrorShape
    type: str | UnsetType = UNSET
    request_id: str | UnsetType | None = UNSET


class Frame(WireObject, tag_field="type"):
    """Any event of the stream."""


class MessageStartFrame(Frame, tag="message_start"):
    message: ResponseShape


class BlockStartFrame(Frame, tag="content_block_start"):
    content_block: BlockUnion
    index: int | UnsetType = UNSET


class Delta(WireObject, tag_field="type"):
    """Any growth of a block."""


class TextDelta(Delta, tag="text_delta"):
    text: str


class InputDelta(Delta, tag="input_json_delta"):
    partial_json: str


class ThinkingDelta(Delta, tag="thinking_delta"):
    thinking: str


class SignatureDelta(Delta, tag="signature_delta"):
    signature: str


class CitationsDelta(Delta, tag="citations_delta"):
    citation: Raw


class CompactionDelta(Delta, tag="compaction_delta"):
    content: Raw | UnsetType = UNSET
    encrypted_content: Raw | UnsetType = UNSET


class BlockDeltaFrame(Frame, tag="content_block_delta"):
    delta: TextDelta | InputDelta | ThinkingDelta | SignatureDelta | CitationsDelta | CompactionDelta
    index: int | UnsetType = UNSET


class BlockStopFrame(Frame, tag="content_block_stop"):
    index: int | UnsetType = UNSET


class MessageEndShape(WireObject):
    stop_reason: str | UnsetType | None = UNSET
    stop_sequence: str | UnsetType | None = UNSET


class MessageDeltaFrame(Frame, tag="message_delta"):
    delta: MessageEndShape
    usage: UsageShape | UnsetType = UNSET


class MessageStopFrame(Frame, tag="message_stop"):
    pass


class PingFrame(Frame, tag="ping"):
    pass


class ErrorFrame(Frame, tag="error"):
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
