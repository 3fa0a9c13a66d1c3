"""Mistral: `api.mistral.ai`, and servers that use `mistral-common`."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHAT_FIELDS, CHOICE, CONTENT, MESSAGES, NEWEST_MODELS, OUTPUT, TOOLS
from toolwire.codec.hosts.profile import (
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FactSource,
    FieldFacts,
    HostProfile,
    ReasoningFacts,
    Recognition,
    ReplayRule,
    ThinkingFacts,
    from_types,
    peer,
    reported,
    unverified,
)

_EFFORT_MODELS = ("mistral-small-2603*", "mistral-medium-2604*", "mistral-medium-3.5*", "magistral-small-latest")
_THINKING_MODELS = ("magistral*", *_EFFORT_MODELS)

PROFILE = HostProfile(
    name="mistral",
    title="Mistral",
    recognition=Recognition(hostnames=("api.mistral.ai", "codestral.mistral.ai")),
    messages=replace(
        MESSAGES,
        user_after_tool=False,
        final_assistant=False,
        members=("role", "content", "tool_calls", "tool_call_id", "name", "prefix"),
    ),
    content=replace(CONTENT, string_roles=(), media=("image", "document"), empty_assistant=False),
    reasoning=ReasoningFacts(
        fields=("content",), replay_field="content", replay=(ReplayRule(models=_THINKING_MODELS, turns="none"),)
    ),
    tools=replace(
        TOOLS,
        max_count=None,
        id_pattern=r"[a-zA-Z0-9]{9}",
        id_limit=9,
        strict="accepted",
        refused_keywords=("$schema", "$id"),
    ),
    choice=CHOICE,
    thinking=ThinkingFacts(
        efforts=(
            EffortRule(
                models=_EFFORT_MODELS,
                words=("none", "high"),
            ),
        ),
        default_on=("magistral*",),
    ),
    output=replace(OUTPUT, stop_limit=None, stream_usage=False),
    fields=FieldFacts(
        known=(
            *CHAT_FIELDS,
            "random_seed",
            "metadata",
            "presence_penalty",
            "frequency_penalty",
            "n",
            "prediction",
            "parallel_tool_calls",
            "prompt_mode",
            "prompt_cache_key",
            "guardrails",
            "safe_prompt",
        ),
        unknown="refused",
        renamed={"seed": "random_seed"},
        cache_key=True,
    ),
    errors=ErrorFacts(
        body='{"object":"error","message":"$message","type":"$type","param":null,"code":"$code"}',
        templates={
            "fields.unknown": ErrorTemplate(
                message='{{"detail":[{{"type":"extra_forbidden","loc":["body","{path}"],'
                '"msg":"Extra inputs are not permitted"}}]}}',
                status=422,
            ),
            "messages.user_after_tool": ErrorTemplate(
                message="Unexpected role 'user' after role 'tool'", type="invalid_request_message_order", code="3230"
            ),
            "messages.order": ErrorTemplate(
                message="Unexpected role '{role}' after role '{previous}'",
                type="invalid_request_message_order",
                code="3230",
            ),
            "messages.final_assistant": ErrorTemplate(
                message="Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
                type="invalid_request_message_order",
                code="3230",
            ),
            "tools.id_pattern": ErrorTemplate(
                message="Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.",
                type="invalid_function_call",
                code="3280",
            ),
            "context": ErrorTemplate(
                message="Prompt contains {input} tokens and 0 draft tokens, too large for model with {limit} maximum "
                "context length"
            ),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": reported(
            "avante-corp/avante.nvim#2562", "BerriAI/litellm#17761", "crush#279", note="order of roles"
        ),
        "messages.roles": unverified("developer is not in the SDK's types"),
        "messages.late_system": unverified("peers hoist them"),
        "messages.members": reported("charmbracelet/crush#1590", "BerriAI/litellm#30882", "BerriAI/litellm#6696"),
        "messages.final_assistant": reported("rig#1130"),
        "content": from_types("mistralai"),
        "content.empty_assistant": peer("litellm"),
        "reasoning": FactSource(
            kind="types",
            references=("mistralai", "vercel/ai"),
            note="thinking parts of the content, each a list of texts; never a field: charmbracelet/crush#1590",
        ),
        "tools": from_types("mistralai"),
        "tools.empty_list": reported("partITech/php-mistral#76"),
        "tools.id_pattern": reported("anomalyco/opencode#1680", "nearai/ironclaw#1241", "karthink/gptel#1203"),
        "tools.refused_keywords": peer("litellm", note="grammar errors in 2025"),
        "tools.max_count": unverified("no limit is known"),
        "choice": from_types("mistralai"),
        "thinking": reported("NousResearch/hermes-agent#11243", "anomalyco/models.dev#1986"),
        "output": reported("eca#231", "eca#315"),
        "output.stream_usage": reported("CherryHQ/cherry-studio#8937", note="usage comes in the last chunk anyway"),
        "fields": reported("Gitlawb/openclaude#739", "pydantic/pydantic-ai#6654"),
        "fields.cache_key": reported("anomalyco/opencode#27556", note="without it nothing is cached"),
        "fields.known": from_types("mistralai"),
        "errors": reported("eca#231", "avante-corp/avante.nvim#2562", "anomalyco/opencode#1680"),
    },
)
PROFILES = (PROFILE,)
