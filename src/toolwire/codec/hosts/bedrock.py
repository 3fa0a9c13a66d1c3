"""Amazon Bedrock: Claude by `InvokeModel`, with the Messages API as its body."""

from toolwire.codec.hosts.profile import (
    AddressFacts,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    Recognition,
    ToolFacts,
    documented,
    from_types,
    peer,
    reported,
)

PROFILE = HostProfile(
    name="bedrock",
    title="Amazon Bedrock",
    protocol="anthropic",
    # below /anthropic, the same servers speak the plain Messages API
    recognition=Recognition(
        hostnames=("bedrock-runtime*.amazonaws.com", "bedrock-runtime*.amazonaws.com.cn"), paths=("",)
    ),
    address=AddressFacts(
        base_urls={
            "cn-*": "https://bedrock-runtime.{region}.amazonaws.com.cn",
            "*": "https://bedrock-runtime.{region}.amazonaws.com",
        },
        path="/model/{model}/invoke",
        stream_path="/model/{model}/invoke-with-response-stream",
        moved=("model", "stream"),
        version="bedrock-2023-05-31",
        cache_control=False,
        beta_member="anthropic_beta",
        framing="aws",
    ),
    tools=ToolFacts(max_count=None, hosted=False, client_run=True, deferred=False),
    fields=FieldFacts(
        known=(
            "cache_control",
            "messages",
            "max_tokens",
            "metadata",
            "output_config",
            "stop_sequences",
            "system",
            "temperature",
            "thinking",
            "tool_choice",
            "tools",
            "top_k",
            "top_p",
        ),
        unknown="refused",
        betas=(
            "compact-2026-01-12",
            "computer-use-2025-01-24",
            "computer-use-2025-11-24",
            "context-1m-2025-08-07",
            "context-management-2025-06-27",
            "dangerous-tool-use-2026-09-03",
            "effort-2025-11-24",
            "fine-grained-tool-streaming-2025-05-14",
            "interleaved-thinking-2025-05-14",
            "mid-conversation-output-config-2026-07-01",
            "mid-conversation-tool-changes-2026-07-01",
            "thinking-binding-controls-2026-08-01",
            "thinking-display-updates-2026-08-18",
        ),
    ),
    errors=ErrorFacts(
        body='{"message":"$message"}',
        type="ValidationException",
        templates={
            "fields.unknown": ErrorTemplate(message="{name}: Extra inputs are not permitted"),
            "fields.betas": ErrorTemplate(message="invalid beta flag"),
            "address.version": ErrorTemplate(message="anthropic_version: Field required"),
            "tools.hosted": ErrorTemplate(message="tool type '{type}' is not supported for this model"),
        },
    ),
    sources={
        "address": from_types("botocore", "anthropic"),
        "address.version": documented("docs.aws.amazon.com", note="anthropic 2.x also sends dates of Anthropic's API"),
        "tools": peer("litellm", note="no hosted tools; tool search on some models only"),
        "fields": peer("litellm", note="context_management only with some edits: BerriAI/litellm#27532"),
        "fields.unknown": reported("BerriAI/litellm#13825", "anthropics/claude-code#49548", "BerriAI/litellm#22847"),
        "fields.betas": reported(
            "router-for-me/CLIProxyAPI#4750",
            "anthropics/claude-code#56595",
            "anthropics/claude-code#49370",
            note="the list of litellm; some models accept fewer",
        ),
        "errors": reported("BerriAI/litellm#13825", "multica-ai/multica#1578"),
    },
)
PROFILES = (PROFILE,)
