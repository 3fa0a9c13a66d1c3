"""GitHub Copilot. Models differ in the endpoints that they accept; `/models` lists them."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHOICE, GENERIC, MESSAGES, OUTPUT, TOOLS
from toolwire.codec.hosts.profile import (
    ContentFacts,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    ReasoningFacts,
    Recognition,
    ThinkingFacts,
    ToolFacts,
    peer,
    reported,
    unverified,
)

_RECOGNITION = Recognition(hostnames=("api.githubcopilot.com", "api.*.githubcopilot.com", "copilot-api.*.ghe.com"))
_ERRORS = ErrorFacts(
    templates={
        "endpoint": ErrorTemplate(
            message='model "{model}" is not accessible via the {path} endpoint', code="unsupported_api_for_model"
        ),
        "tools.max_count": ErrorTemplate(message="You may not include more than {limit} tools in your request."),
        "tools.hosted": ErrorTemplate(message="The use of the web search tool is not supported."),
        "context": ErrorTemplate(
            message="prompt token count of {input} exceeds the limit of {limit}",
            code="model_max_prompt_tokens_exceeded",
        ),
    }
)

PROFILE = HostProfile(
    name="copilot",
    title="GitHub Copilot",
    recognition=_RECOGNITION,
    messages=replace(MESSAGES, late_system=True),
    content=ContentFacts(media=("image",), cache_marks=False),
    reasoning=ReasoningFacts(fields=("reasoning_text", "reasoning_opaque")),
    tools=replace(TOOLS, strict="accepted"),
    choice=CHOICE,
    thinking=ThinkingFacts(efforts=()),
    output=OUTPUT,
    fields=FieldFacts(refused=GENERIC.fields.refused, user_pattern=GENERIC.fields.user_pattern),
    errors=_ERRORS,
    sources={
        "messages": unverified("the role developer is not established"),
        "content": unverified(),
        "reasoning": unverified(),
        "tools": reported("microsoft/vscode#259392", "github/copilot-cli#4836", note="350 for grok-4.5"),
        "choice": unverified(),
        "thinking": unverified("by model"),
        "output": unverified(),
        "fields": unverified("set as for unknown hosts"),
        "errors": reported("ericc-ch/copilot-api#208", "anomalyco/opencode#36305", "microsoft/vscode#259392"),
    },
)
RESPONSES = HostProfile(
    name="copilot",
    title="GitHub Copilot",
    protocol="openai-responses",
    recognition=_RECOGNITION,
    errors=_ERRORS,
    sources={"errors": reported("ericc-ch/copilot-api#208"), "tools": peer("litellm", note="item ids differ by event")},
)
ANTHROPIC = HostProfile(
    name="copilot",
    title="GitHub Copilot",
    protocol="anthropic",
    recognition=_RECOGNITION,
    tools=ToolFacts(hosted=False),
    errors=_ERRORS,
    sources={
        "tools": reported("caozhiyuan/copilot-api#189"),
        "errors": reported("caozhiyuan/copilot-api#189", note="bodies are often text/plain"),
    },
)
PROFILES = (PROFILE, RESPONSES, ANTHROPIC)
