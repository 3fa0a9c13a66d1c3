"""DeepSeek: `api.deepseek.com` with its Chat, Messages (`/anthropic`) and Responses forms."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import (
    CHAT_FIELDS,
    CONTENT,
    LEADING_SYSTEM,
    MESSAGES,
    MODES,
    NEWEST_MODELS,
    OUTPUT,
    TOOLS,
    UNSIGNED,
)
from toolwire.codec.hosts.profile import (
    ChoiceFacts,
    ChoiceRule,
    ContentFacts,
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    FormatRule,
    HostProfile,
    ReasoningFacts,
    Recognition,
    ReplayRule,
    ThinkingFacts,
    ThinkingSwitch,
    ToolFacts,
    documented,
    from_types,
    peer,
    reported,
    unverified,
)

_HOSTNAMES = ("api.deepseek.com",)
_THINKING_MODELS = ("*reasoner*", "*flash*", "*v4*", "*pro*")
_VISION_MODELS = ("*vision*", "*flash-4.1*")
_EFFORTS = (EffortRule(words=("low", "high", "max")),)

PROFILE = HostProfile(
    name="deepseek",
    title="DeepSeek",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=replace(MESSAGES, late_system=True),
    content=replace(CONTENT, image_models=_VISION_MODELS, null_with_calls=True, empty_assistant=False),
    reasoning=ReasoningFacts(
        fields=("reasoning_content",),
        replay_field="reasoning_content",
        replay=(ReplayRule(turns="all", placeholder=""),),
    ),
    tools=replace(TOOLS, strict="refused", empty_list=True),
    choice=ChoiceFacts(
        rules=(ChoiceRule(modes=MODES, thinking_modes=("auto", "none")),),
    ),
    thinking=ThinkingFacts(
        efforts=(EffortRule(models=("deepseek-chat",)), *_EFFORTS),
        switch=ThinkingSwitch(field="thinking"),
        default_on=_THINKING_MODELS,
    ),
    output=replace(
        OUTPUT, stop_limit=16, formats=(FormatRule(types=("text", "json_object")),), json_in_prompt_required=True
    ),
    fields=FieldFacts(
        known=(
            *CHAT_FIELDS,
            "thinking",
            "frequency_penalty",
            "presence_penalty",
            "stream_options",
            "logprobs",
            "top_logprobs",
            "user_id",
        ),
        unknown="ignored",
        ignored=("stream_options/include_obfuscation",),
    ),
    errors=ErrorFacts(
        body='{"error":{"message":"$message","type":"$type","param":null,"code":"$code"}}',
        code="invalid_request_error",
        templates={
            "messages.roles": ErrorTemplate(
                message="Failed to deserialize the JSON body into the target type: messages[{index}].role: unknown "
                "variant `{role}`, expected one of `system`, `user`, `assistant`, `tool`, `latest_reminder`"
            ),
            "content.string_roles": ErrorTemplate(
                message="Failed to deserialize the JSON body into the target type: messages[{index}]: invalid type: "
                "sequence, expected a string",
                status=422,
            ),
            "content.image_models": ErrorTemplate(
                message="Failed to deserialize the JSON body into the target type: messages[{index}]: unknown variant "
                "`image_url`, expected `text`"
            ),
            "content.empty_assistant": ErrorTemplate(
                message="Invalid assistant message: content or tool_calls must be set"
            ),
            "messages.results": ErrorTemplate(
                message="An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. (insufficient tool messages following tool_calls message)"
            ),
            "reasoning.replay": ErrorTemplate(
                message="The `reasoning_content` in the thinking mode must be passed back to the API."
            ),
            "choice.thinking_modes": ErrorTemplate(message="Thinking mode does not support this tool_choice"),
            "tools.freeform": ErrorTemplate(
                message="Failed to deserialize the JSON body into the target type: tools[{index}].type: unknown "
                "variant `{type}`, expected `function`"
            ),
            "output.formats": ErrorTemplate(message="This response_format type is unavailable now"),
            "output.json_in_prompt_required": ErrorTemplate(
                message="Prompt must contain the word 'json' in some form to use 'response_format' of type "
                "'json_object'."
            ),
            "context": ErrorTemplate(
                message="This model's maximum context length is {limit} tokens. However, you requested {total} tokens "
                "({input} in the messages, {output} in the completion). Please reduce the length of the messages or "
                "completion."
            ),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages.roles": reported("earendil-works/pi#1048", "BenedictKing/ccx#149", "eclipse-theia/theia#15144"),
        "messages": unverified("names and refusals"),
        "content.string_roles": reported(
            "cline/cline#230",
            "BerriAI/litellm#6642",
            "Gitlawb/openclaude#774",
            "moeru-ai/airi#1497",
            note="since V4 a list of user texts seems to be accepted; peers still send strings",
        ),
        "content.image_models": reported("rikkahub/rikkahub#1433", "ChatLunaLab/chatluna#867"),
        "content.empty_assistant": reported("carlrobertoh/ProxyAI#834"),
        "content": documented(),
        "reasoning": reported(
            "earendil-works/pi#3636",
            "SaladDay/cc-switch-cli#169",
            "NousResearch/hermes-agent#15228",
            note="on every assistant message of a thinking conversation; an empty string satisfies it",
        ),
        "tools": documented(note="strict only on /beta; functions only: BerriAI/litellm#30722"),
        "choice": reported("BerriAI/litellm#37470", "deepseek-ai/DeepSeek-V3#1376", note="measured"),
        "thinking": documented(note="minimal counts as low, medium and xhigh as high, ultra as max"),
        "output.limit_field": documented(),
        "output.limit_fields": documented(),
        "output.stop_limit": documented(),
        "output.formats": reported("llm-exe/llm-exe#662", "UKGovernmentBEIS/inspect_ai#4916", "BerriAI/litellm#31466"),
        "output.json_in_prompt_required": reported("browserbase/stagehand#1204"),
        "fields": documented(note="unknown fields are ignored: pydantic-ai, SaladDay/cc-switch-cli#169"),
        "fields.known": from_types(),
        "errors": reported("earendil-works/pi#1048", "cline/cline#230", "openai/codex#22129"),
    },
)
ANTHROPIC = HostProfile(
    name="deepseek",
    title="DeepSeek",
    protocol="anthropic",
    recognition=Recognition(hostnames=_HOSTNAMES),
    messages=LEADING_SYSTEM,
    content=ContentFacts(media=(), cache_marks=False),
    reasoning=UNSIGNED,
    tools=ToolFacts(typed=False, hosted=False),
    thinking=ThinkingFacts(efforts=_EFFORTS, default_on=_THINKING_MODELS),
    choice=PROFILE.choice,
    fields=FieldFacts(ignored=("container", "mcp_servers", "service_tier", "top_k", "thinking/budget_tokens")),
    errors=ErrorFacts(
        templates={
            "messages.late_system": ErrorTemplate(
                message="messages[{index}].role: unknown variant `system`, expected `user` or `assistant`"
            )
        }
    ),
    sources={
        "messages.late_system": reported(
            "farion1231/cc-switch#3281", "deepseek-ai/awesome-deepseek-integration#639", note="May 2026"
        ),
        "content": documented(note="images by an older page; cache_control is ignored"),
        "reasoning": unverified("as the Chat form"),
        "tools": peer("litellm"),
        "choice": reported("BerriAI/litellm#37470", note="the Chat form"),
        "thinking": documented(),
        "fields": documented(),
        "errors": reported("farion1231/cc-switch#3281"),
    },
)
RESPONSES = HostProfile(
    name="deepseek",
    title="DeepSeek",
    protocol="openai-responses",
    recognition=Recognition(hostnames=_HOSTNAMES),
    tools=ToolFacts(hosted=False, freeform=False),
    choice=ChoiceFacts(rules=PROFILE.choice.rules),
    thinking=ThinkingFacts(efforts=_EFFORTS, default_on=_THINKING_MODELS),
    fields=FieldFacts(ignored=("store", "previous_response_id")),
    sources={
        "tools": unverified("functions only, as the Chat form: namespaces were rejected there (BerriAI/litellm#30722)"),
        "choice": reported("BerriAI/litellm#37470", note="the Chat form"),
        "thinking": documented(),
        "fields": documented(note="stateless"),
    },
)
PROFILES = (PROFILE, ANTHROPIC, RESPONSES)
