"""Zhipu and Z.ai (GLM): Chat, and the Messages form at `/api/anthropic`."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import (
    CHAT_FIELDS,
    CONTENT,
    MESSAGES,
    NEWEST_MODELS,
    OUTPUT,
    REASONING_CONTENT,
    TOOLS,
    UNSIGNED,
)
from toolwire.codec.hosts.profile import (
    ChoiceFacts,
    ChoiceRule,
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    FormatRule,
    HostProfile,
    MessageFacts,
    Recognition,
    ThinkingFacts,
    ThinkingSwitch,
    documented,
    peer,
    reported,
    unverified,
)

_HOSTNAMES = ("api.z.ai", "open.bigmodel.cn")
_DEFAULT_ON = ("glm-4.7*", "glm-5*")

PROFILE = HostProfile(
    name="zai",
    title="Zhipu and Z.ai (GLM)",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=replace(MESSAGES, late_system=True, user_required=True),
    content=replace(CONTENT, image_models=("glm-*v", "glm-*v-*", "glm-5v*")),
    reasoning=REASONING_CONTENT,
    tools=TOOLS,
    choice=ChoiceFacts(rules=(ChoiceRule(modes=("auto",)),)),
    thinking=ThinkingFacts(
        efforts=(
            EffortRule(models=("glm-5.3*",), words=("low", "high", "max")),
            EffortRule(models=("glm-5.2*",), words=("none", "minimal", "low", "medium", "high", "xhigh", "max")),
        ),
        switch=ThinkingSwitch(
            field="thinking",
            models=("glm-4.5*", "glm-4.6*", "glm-4.7*", "glm-5*"),
            can_disable=("glm-4*", "glm-5", "glm-5-*", "glm-5.0*", "glm-5.1*", "glm-5.2*"),
        ),
        default_on=_DEFAULT_ON,
    ),
    output=replace(OUTPUT, stop_limit=1, formats=(FormatRule(types=("text", "json_object")),), stream_usage=False),
    fields=FieldFacts(
        known=(*CHAT_FIELDS, "request_id", "do_sample", "thinking", "tool_stream", "user_id"),
        unknown="ignored",
        max_temperature=1.0,
    ),
    errors=ErrorFacts(
        body='{"error":{"code":"$code","message":"$message"}}',
        code="1210",
        templates={
            "messages.user_required": ErrorTemplate(
                message="The messages parameter is illegal. Please check the documentation.", code="1214"
            ),
            "messages.roles": ErrorTemplate(
                message="The messages parameter is illegal. Please check the documentation.", code="1214"
            ),
            "fields.user_pattern": ErrorTemplate(
                message="user_id: The unique ID of the user must be between 6 and 128 characters in length.",
                code="1214",
            ),
            "fields.unknown": ErrorTemplate(
                message="Invalid API parameter, please check the documentation.", code="1210"
            ),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": documented(note="roles system, user, assistant, tool"),
        "messages.user_required": reported("anomalyco/opencode#2557"),
        "content": documented(note="text models take mainly plain text"),
        "content.null_with_calls": unverified(),
        "reasoning": documented(),
        "tools": unverified("128 tools"),
        "choice": documented(note="only auto"),
        "thinking": documented(note="glm-5.3 always thinks: pydantic-ai"),
        "output.limit_field": peer("litellm", "agentscope"),
        "output.limit_fields": peer("litellm", "agentscope"),
        "output": unverified("one stop sequence, no json_schema, stream_options removed by agentscope"),
        "fields": peer("agentscope", note="members that its formatter removes; some others give error 1210"),
        "errors": reported("cline/cline#9939", "anomalyco/opencode#2557", "looplj/axonhub#1131"),
    },
)
ANTHROPIC = HostProfile(
    name="zai",
    title="Zhipu and Z.ai (GLM)",
    protocol="anthropic",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=MessageFacts(user_required=True),
    reasoning=UNSIGNED,
    fields=FieldFacts(user_pattern=r".{6,128}"),
    errors=PROFILE.errors,
    sources={
        "messages": unverified("as the Chat form"),
        "reasoning": unverified("signatures are empty or absent"),
        "fields": reported("looplj/axonhub#1131", "looplj/axonhub#1669"),
        "errors": reported("looplj/axonhub#1131"),
    },
)
PROFILES = (PROFILE, ANTHROPIC)
