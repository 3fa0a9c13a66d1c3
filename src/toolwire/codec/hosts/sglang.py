"""SGLang. The schema accepts more roles than many chat templates do."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHOICE, CONTENT, MESSAGES, NEWEST_MODELS, REASONING_CONTENT, TOOLS
from toolwire.codec.hosts.profile import (
    EFFORTS,
    EffortRule,
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    HostProfile,
    OutputFacts,
    ThinkingFacts,
    read_in_source,
    unverified,
)
from toolwire.codec.hosts.vllm import PROFILE as VLLM

PROFILE = HostProfile(
    name="sglang",
    title="SGLang",
    messages=MESSAGES,
    content=replace(CONTENT, string_roles=(), null_with_calls=True),
    reasoning=REASONING_CONTENT,
    tools=replace(TOOLS, max_count=None, bare_functions=True),
    choice=CHOICE,
    thinking=ThinkingFacts(efforts=(EffortRule(words=EFFORTS),)),
    output=OutputFacts(stop_limit=None),
    fields=FieldFacts(ignored=VLLM.fields.ignored),
    errors=ErrorFacts(
        body='{"object":"error","message":"$message","type":"$type","param":null,"code":"$status"}',
        type="BadRequestError",
        templates={
            "messages.roles": ErrorTemplate(
                message="'role' must be one of 'system', 'assistant', 'tool', 'function', "
                "'developer', 'latest_reminder' or 'user' (case-insensitive)."
            ),
            "messages.late_system": ErrorTemplate(message="System message must be at the beginning."),
        },
    ),
    sources={
        "content.original_images": NEWEST_MODELS,
        "messages": unverified("the schema accepts developer and late system messages, templates may not"),
        "content": read_in_source("sgl-project/sglang"),
        "reasoning": read_in_source("sgl-project/sglang"),
        "tools": read_in_source("sgl-project/sglang"),
        "choice": read_in_source("sgl-project/sglang"),
        "thinking": read_in_source("sgl-project/sglang"),
        "output": read_in_source("sgl-project/sglang"),
        "fields": read_in_source("sgl-project/sglang"),
        "errors": read_in_source("sgl-project/sglang"),
    },
)
PROFILES = (PROFILE,)
