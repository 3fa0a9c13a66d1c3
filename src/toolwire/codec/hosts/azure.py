"""Azure OpenAI and Foundry.

Deployment names say nothing about the model, so the dialect is OpenAI's.
"""

from msgspec.structs import replace

from toolwire.codec.hosts.openai import OPENAI
from toolwire.codec.hosts.profile import (
    ErrorFacts,
    ErrorTemplate,
    FieldFacts,
    OutputFacts,
    ReasoningFacts,
    Recognition,
    peer,
    reported,
    unverified,
)

PROFILE = replace(
    OPENAI,
    name="azure",
    title="Azure OpenAI",
    recognition=Recognition(
        hostnames=("*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com")
    ),
    content=replace(OPENAI.content, media=("image", "audio")),
    output=OutputFacts(),
    fields=FieldFacts(unknown="refused", user_pattern=r".{0,64}", cache_key=True),
    errors=ErrorFacts(
        templates=OPENAI.errors.templates
        | {
            "fields.known": ErrorTemplate(message="Unknown parameter: '{name}'.", code="unknown_parameter"),
            "tools.id_pattern": ErrorTemplate(
                message="Invalid '{path}': string too long. Expected a string with maximum length {limit}, but got a "
                "string with length {length} instead.",
                code="string_above_max_length",
            ),
        }
    ),
    sources={
        "reasoning": unverified("models of other vendors keep their rules"),
        "content.cache_mark_models": unverified("as OpenAI's API"),
        "content.media": peer("pydantic-ai", note="no files in chat"),
        "fields": reported(
            "openai/openai-python#1724",
            "BerriAI/litellm#8638",
            "run-llama/llama_index#17731",
            note="which arguments are known depends on the api-version",
        ),
        "fields.cache_key": unverified("as OpenAI's API"),
        "fields.user_pattern": peer("bifrost"),
        "errors": reported("openai/openai-python#1724", "promptfoo#3781", "langmanus#119"),
    },
)
RESPONSES = replace(
    PROFILE,
    protocol="openai-responses",
    reasoning=ReasoningFacts(),
    fields=replace(
        PROFILE.fields,
        stores_by_default=False,
    ),
    errors=replace(
        PROFILE.errors,
        templates=PROFILE.errors.templates
        | {"fields.by_model": ErrorTemplate(message="Encrypted content is not supported with this model.")},
    ),
    sources=PROFILE.sources
    | {
        "errors": reported("pydantic/pydantic-ai#2915", "earendil-works/pi#6228", note="include on other deployments"),
        "tools.id_pattern": reported("AnswerDotAI/fastllm#45", "HKUDS/nanobot#1623", note="call_id up to 64"),
    },
)
PROFILES = (PROFILE, RESPONSES)
