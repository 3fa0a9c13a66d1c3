"""DeepSeek: `api.deepseek.com` with its Chat, Messages (`/anthropic`) and Responses forms."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CONTENT, MESSAGES, OUTPUT, TOOLS
from toolwire.codec.hosts.profile import (
    Choice,
    ChoiceRule,
    Content,
    EchoRule,
    EffortRule,
    Errors,
    Fields,
    FormatRule,
    HostProfile,
    Messages,
    Reasoning,
    Recognition,
    Thinking,
    ThinkingSwitch,
    Tools,
    Wording,
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
    reasoning=Reasoning(
        fields=("reasoning_content",),
        echo_field="reasoning_content",
        echo=(EchoRule(turns="all", placeholder=""),),
    ),
    tools=replace(TOOLS, strict="refused", empty_list=True),
    choice=Choice(
        rules=(ChoiceRule(modes=("auto", "none", "required", "named"), thinking_modes=("auto", "none")),),
    ),
    thinking=Thinking(
        efforts=(EffortRule(models=("deepseek-chat",)), *_EFFORTS),
        switch=ThinkingSwitch(field="thinking"),
        default_on=_THINKING_MODELS,
    ),
    output=replace(OUTPUT, stop_limit=16, formats=(FormatRule(types=("text", "json_object")),), json_word=True),
    fields=Fields(
        known=(
            "model",
            "messages",
            "thinking",
            "reasoning_effort",
            "frequency_penalty",
            "presence_penalty",
            "max_tokens",
            "response_format",
            "stop",
            "stream",
            "stream_options",
            "temperature",
            "top_p",
            "tools",
            "tool_choice",
            "logprobs",
            "top_logprobs",
            "user_id",
        ),
        unknown="ignored",
        ignored=("stream_options/include_obfuscation",),
    ),
    errors=Errors(
        body='{"error":{"message":"$message","type":"$type","param":null,"code":"$code"}}',
        code="invalid_request_error",
        wordings={
            "messages.roles": Wording(
                message="Failed to deserialize the JSON body into the target type: messages[{index}].role: unknown "
                "variant `{role}`, expected one of `system`, `user`, `assistant`, `tool`, `latest_reminder`"
            ),
            "content.string_roles": Wording(
                message="Failed to deserialize the JSON body into the target type: messages[{index}]: invalid type: "
                "sequence, expected a string",
                status=422,
            ),
            "content.image_models": Wording(
                message="Failed to deserialize the JSON body into the target type: messages[{index}]: unknown variant "
                "`image_url`, expected `text`"
            ),
            "content.empty_assistant": Wording(message="Invalid assistant message: content or tool_calls must be set"),
            "messages.results": Wording(
                message="An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. (insufficient tool messages following tool_calls message)"
            ),
            "reasoning.echo": Wording(
                message="The `reasoning_content` in the thinking mode must be passed back to the API."
            ),
            "choice.thinking_modes": Wording(message="Thinking mode does not support this tool_choice"),
            "tools.freeform": Wording(
                message="Failed to deserialize the JSON body into the target type: tools[{index}].type: unknown "
                "variant `{type}`, expected `function`"
            ),
            "output.formats": Wording(message="This response_format type is unavailable now"),
            "output.json_word": Wording(
                message="Prompt must contain the word 'json' in some form to use 'response_format' of type "
                "'json_object'."
            ),
            "context": Wording(
                message="This model's maximum context length is {limit} tokens. However, you requested {total} tokens "
                "({input} in the messages, {output} in the completion). Please reduce the length of the messages or "
                "completion."
            ),
        },
    ),
    sources={
        "content.original_images": unverified("a value of OpenAI's newest models"),
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
        "output.json_word": reported("browserbase/stagehand#1204"),
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
    messages=Messages(late_system=False),
    content=Content(media=(), cache_marks=False),
    reasoning=Reasoning(signatures=False),
    tools=Tools(typed=False, hosted=False),
    thinking=Thinking(efforts=_EFFORTS, default_on=_THINKING_MODELS),
    choice=PROFILE.choice,
    fields=Fields(ignored=("container", "mcp_servers", "service_tier", "top_k", "thinking/budget_tokens")),
    errors=Errors(
        wordings={
            "messages.late_system": Wording(
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
    tools=Tools(hosted=False, freeform=False),
    choice=Choice(rules=PROFILE.choice.rules),
    thinking=Thinking(efforts=_EFFORTS, default_on=_THINKING_MODELS),
    fields=Fields(ignored=("store", "previous_response_id")),
    sources={
        "tools": unverified("functions only, as the Chat form: namespaces were rejected there (BerriAI/litellm#30722)"),
        "choice": reported("BerriAI/litellm#37470", note="the Chat form"),
        "thinking": documented(),
        "fields": documented(note="stateless"),
    },
)
PROFILES = (PROFILE, ANTHROPIC, RESPONSES)
