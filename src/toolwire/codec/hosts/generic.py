"""Unknown servers: the form of a request that every known Chat server accepts."""

from msgspec.structs import replace

from toolwire.codec.hosts.openai import MODEL_REASONING
from toolwire.codec.hosts.profile import (
    ChoiceFacts,
    ChoiceRule,
    ContentFacts,
    FieldFacts,
    HostProfile,
    MessageFacts,
    OutputFacts,
    ReasoningFacts,
    ThinkingFacts,
    ToolFacts,
    peer,
    reported,
    unverified,
)

ROLES = ("system", "user", "assistant", "tool")
MODES = ("auto", "none", "required", "named")
OPENAI_FIELDS = (
    "metadata",
    "moderation",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options/include_obfuscation",
    "verbosity",
)
"""Members of the body that only OpenAI's API has."""

CHAT_FIELDS = (
    "model",
    "messages",
    "stream",
    "temperature",
    "top_p",
    "stop",
    "max_tokens",
    "response_format",
    "tools",
    "tool_choice",
    "reasoning_effort",
)
"""Members of the body that all hosts know which list the members that they know."""

PLAIN_USER = r"[A-Za-z0-9_-]{1,64}"
"""End-user ids that all hosts accept."""

REASONING_CONTENT = ReasoningFacts(fields=("reasoning_content",), replay_field="reasoning_content")
"""Reasoning in DeepSeek's field, which may be sent back."""

LEADING_SYSTEM = MessageFacts(late_system=False)
UNSIGNED = ReasoningFacts(signatures=False, signature_scope="account")
"""Messages and reasoning of the Messages and Responses forms that hosts offer beside Chat."""

NEWEST_MODELS = unverified("a value of OpenAI's newest models")
"""The source of `content.original_images`."""

MESSAGES = MessageFacts(roles=ROLES, late_system=False, names=False, refusals=False)
CONTENT = ContentFacts(
    string_roles=ROLES, media=("image",), original_images=False, null_with_calls=False, cache_marks=False
)
TOOLS = ToolFacts(
    freeform=False, hosted=False, bare_functions=False, strict="ignored", empty_list=False, web_search=False
)
CHOICE = ChoiceFacts(rules=(ChoiceRule(modes=MODES),))
OUTPUT = OutputFacts(limit_field="max_tokens", limit_fields=("max_tokens",))

GENERIC = HostProfile(
    name="generic",
    title="Unknown Chat servers",
    pass_through=True,
    messages=MESSAGES,
    content=replace(CONTENT, media=("image", "audio", "document")),
    reasoning=MODEL_REASONING,
    tools=TOOLS,
    choice=CHOICE,
    thinking=ThinkingFacts(efforts=()),
    output=OUTPUT,
    fields=FieldFacts(refused=OPENAI_FIELDS, user_pattern=PLAIN_USER),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": reported("earendil-works/pi#1048", "vllm-project/vllm#41114", note="the strictest of known hosts"),
        "content": reported("cline/cline#230", "langchain-ai/langchain#34140", note="the strictest of known hosts"),
        "reasoning": reported("earendil-works/pi#3636", "earendil-works/pi#4178", note="by the names of models"),
        "tools": reported("QwenLM/qwen-code#11834", "BerriAI/litellm#30722", note="the strictest of known hosts"),
        "choice": peer("litellm"),
        "thinking": reported("BerriAI/litellm#16265", note="many hosts reject an effort"),
        "output": reported("eca#231", note="max_tokens is the only name that all hosts know"),
        "fields": reported("Gitlawb/openclaude#739", "Gitlawb/openclaude#740", note="several hosts reject them"),
        "errors": unverified(),
    },
)
PROFILE = GENERIC
PROFILES = (PROFILE,)
