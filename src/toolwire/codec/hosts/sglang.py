"""SGLang. The schema accepts more roles than many chat templates do."""

from msgspec.structs import replace

from toolwire.codec.hosts.generic import CHOICE, CONTENT, MESSAGES, TOOLS
from toolwire.codec.hosts.profile import (
    EFFORTS,
    EffortRule,
    Errors,
    Fields,
    HostProfile,
    Output,
    Reasoning,
    Thinking,
    Wording,
    read_in_source,
    unverified,
)
from toolwire.codec.hosts.vllm import PROFILE as VLLM

PROFILE = HostProfile(
    name="sglang",
    title="SGLang",
    messages=MESSAGES,
    content=replace(CONTENT, string_roles=(), null_with_calls=True),
    reasoning=Reasoning(fields=("reasoning_content",), echo_field="reasoning_content"),
    tools=replace(TOOLS, max_count=None, bare_functions=True),
    choice=CHOICE,
    thinking=Thinking(efforts=(EffortRule(words=EFFORTS),)),
    output=Output(stop_limit=None),
    fields=Fields(ignored=VLLM.fields.ignored),
    errors=Errors(
        body='{"object":"error","message":"$message","type":"$type","param":null,"code":"$status"}',
        type="BadRequestError",
        wordings={
            "messages.roles": Wording(
                message="'role' must be one of 'system', 'assistant', 'tool', 'function', "
                "'developer', 'latest_reminder' or 'user' (case-insensitive)."
            ),
            "messages.late_system": Wording(message="System message must be at the beginning."),
        },
    ),
    sources={
        "content.original_images": unverified("a value of OpenAI's newest models"),
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
