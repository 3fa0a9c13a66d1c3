"""Vertex AI: Claude by `rawPredict`, and Gemini by `generateContent`, below a project and a location."""

from toolwire.codec.hosts.profile import (
    AddressFacts,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    Recognition,
    ToolFacts,
    from_types,
    peer,
    reported,
)

_RECOGNITION = Recognition(
    hostnames=("aiplatform.googleapis.com", "*-aiplatform.googleapis.com", "aiplatform.*.rep.googleapis.com")
)
_BASE_URLS = {
    "global": "https://aiplatform.googleapis.com",
    "us": "https://aiplatform.us.rep.googleapis.com",
    "eu": "https://aiplatform.eu.rep.googleapis.com",
    "*": "https://{region}-aiplatform.googleapis.com",
}
_PARENT = "projects/{project}/locations/{region}/publishers"

ANTHROPIC = HostProfile(
    name="vertex",
    title="Vertex AI",
    protocol="anthropic",
    recognition=_RECOGNITION,
    address=AddressFacts(
        base_urls=_BASE_URLS,
        path=f"/v1/{_PARENT}/anthropic/models/{{model}}:rawPredict",
        stream_path=f"/v1/{_PARENT}/anthropic/models/{{model}}:streamRawPredict",
        count_path=f"/v1/{_PARENT}/anthropic/models/count-tokens:rawPredict",
        moved=("model",),
        version="vertex-2023-10-16",
    ),
    tools=ToolFacts(max_count=None),
    fields=FieldFacts(
        refused=("container", "mcp_servers", "speed"),
        unknown="refused",
        betas=(
            "compact-2026-01-12",
            "compact-2026-09-04",
            "computer-use-2025-01-24",
            "computer-use-2025-11-24",
            "context-1m-2025-08-07",
            "context-management-2025-06-27",
            "dangerous-tool-use-2026-09-03",
            "interleaved-thinking-2025-05-14",
            "per-turn-control-2026-07-01",
            "thinking-binding-controls-2026-08-01",
            "thinking-display-updates-2026-08-18",
            "tool-search-tool-2025-10-19",
            "web-search-2025-03-05",
        ),
        renamed_betas={"advanced-tool-use-2025-11-20": "tool-search-tool-2025-10-19"},
    ),
    errors=ErrorFacts(
        body='{"type":"error","error":{"type":"$type","message":"$message"}}',
        templates={
            "fields.unknown": ErrorTemplate(message="{name}: Extra inputs are not permitted"),
            "fields.betas": ErrorTemplate(message="Unexpected value(s) `{name}` for the `anthropic-beta` header."),
            "address.version": ErrorTemplate(message="anthropic_version: Field required"),
        },
    ),
    sources={
        "address": from_types("anthropic"),
        "address.version": peer("litellm", note="anthropic 2.x also sends dates of Anthropic's API"),
        "tools": peer("litellm", note="the number of tools is that of Anthropic"),
        "fields": peer("litellm"),
        "fields.unknown": reported("anthropics/claude-code#21612", "anthropics/claude-code#37746"),
        "fields.betas": reported(
            "QuantumNous/new-api#2975", "anthropics/claude-code#34802", note="the list of litellm"
        ),
        "errors": reported("anthropics/claude-code#21612"),
    },
)
GEMINI = HostProfile(
    name="vertex",
    title="Vertex AI",
    protocol="gemini",
    recognition=_RECOGNITION,
    address=AddressFacts(
        base_urls=_BASE_URLS,
        path=f"/v1beta1/{_PARENT}/google/models/{{model}}:generateContent",
        stream_path=f"/v1beta1/{_PARENT}/google/models/{{model}}:streamGenerateContent?alt=sse",
        count_path=f"/v1beta1/{_PARENT}/google/models/{{model}}:countTokens",
        count_members=("contents", "systemInstruction", "tools", "generationConfig"),
    ),
    fields=FieldFacts(refused=("toolConfig/includeServerSideToolInvocations",)),
    errors=ErrorFacts(
        body='{"error":{"code":"$status","message":"$message","status":"INVALID_ARGUMENT"}}',
        templates={
            "fields.refused": ErrorTemplate(
                message='Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
            )
        },
    ),
    sources={
        "address": from_types("google-genai"),
        "fields": from_types("google-genai"),
        "errors": reported("vercel/ai", note="the wording of other unknown names"),
    },
)
PROFILES = (ANTHROPIC, GEMINI)
