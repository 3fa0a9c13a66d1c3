"""The profile of a host: which part of a protocol its server accepts, and how each fact is known.

A profile is plain data, one per host and protocol. Its defaults describe the vendor's API: OpenAI's for Chat and
Responses, Anthropic's for Messages. Models are named by glob patterns, in lower case; the first rule that matches
a model decides.
"""

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, TypeVar

from msgspec import Struct, field

ALL_MODELS = ("*",)
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
CHOICES = ("auto", "none", "required", "named", "allowed")

SourceKind = Literal["documented", "source", "types", "peer", "reported", "tried", "unverified"]
"""The kinds of evidence for a fact, explained in `docs/reference/hosts.md`."""


class Facts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A group of facts about a host."""


class FactSource(Facts, frozen=True, kw_only=True):
    """The origin of a fact."""

    kind: SourceKind  # the kind of evidence
    references: tuple[str, ...] = ()  # issues such as `cline/cline#230`, projects or pages
    note: str = ""  # details, and the year of facts older than 2026


class Recognition(Facts, frozen=True, kw_only=True):
    """The base URLs that identify the host: by host name or port, and also by path if `paths` has patterns."""

    hostnames: tuple[str, ...] = ()  # glob patterns
    ports: tuple[int, ...] = ()  # of servers on this machine
    paths: tuple[str, ...] = ()  # glob patterns


class AddressFacts(Facts, frozen=True, kw_only=True):
    """The endpoints of a cloud platform that serves the protocol at paths of its own.

    `{region}`, `{project}` and `{model}` in them stand for settings of the provider and for the model.
    """

    base_urls: dict[str, str] = field(default_factory=dict)  # by glob pattern of the region; the first match counts
    path: str = ""  # of requests; empty: that of the protocol
    stream_path: str = ""  # of requests for a stream
    count_path: str = ""  # for counting tokens; empty: there is none
    count_members: tuple[str, ...] = ()  # the only members of a request to count; empty: those of the protocol
    moved: tuple[str, ...] = ()  # members of the body that the path states instead
    version: str = ""  # the member `anthropic_version`; empty: the body has none
    cache_control: bool = True  # accepts it at the top level; otherwise it is written to the last block
    beta_member: str = ""  # the member for what `anthropic-beta` lists; empty: it stays a header
    framing: Literal["sse", "aws"] = "sse"  # of streams; aws: `application/vnd.amazon.eventstream`


class MessageFacts(Facts, frozen=True, kw_only=True):
    """Roles, order and members of messages."""

    roles: tuple[str, ...] = ("system", "developer", "user", "assistant", "tool")  # accepted roles
    late_system: bool = True  # accepts several system messages, also late in the conversation
    user_after_tool: bool = True  # accepts a user message right after a tool result
    user_required: bool = False  # rejects conversations without a user message
    final_assistant: bool = True  # accepts an assistant message as the last one
    prefill: bool = False  # continues such a message
    names: bool = True  # accepts `name` on messages
    refusals: bool = True  # accepts `refusal` on messages
    members: tuple[str, ...] = ()  # accepts only these members of messages; empty: all


class ContentFacts(Facts, frozen=True, kw_only=True):
    """The content of messages."""

    string_roles: tuple[str, ...] = ()  # roles whose text must be a single string
    media: tuple[str, ...] = ("image", "audio", "document")  # accepted beside text in user messages
    image_models: tuple[str, ...] = ALL_MODELS  # models that accept images
    image_urls: bool = True  # accepts web addresses of images, not only data URLs
    original_images: bool = True  # accepts the image detail `original`
    null_with_calls: bool = True  # accepts `content: null` beside tool calls
    empty_assistant: bool = True  # accepts assistant messages with neither text nor calls
    document_urls: bool = False  # accepts web addresses of documents
    audio_formats: tuple[str, ...] = ("wav", "mp3")  # accepted formats of audio; empty: all
    cache_marks: bool = True  # accepts the protocol's cache marks
    cache_control: bool = False  # accepts `cache_control` on texts, tools and requests, as the Messages API does
    cache_mark_models: tuple[str, ...] = ALL_MODELS  # models that accept cache marks


class ReplayRule(Facts, frozen=True, kw_only=True):
    """The earlier turns whose reasoning must be sent back."""

    models: tuple[str, ...] = ALL_MODELS  # glob patterns of the models that the rule is for
    turns: Literal["none", "calls", "all"]  # the assistant turns that must carry it
    placeholder: str | None = None  # stands for reasoning that is not available; None: no placeholder is known


class ReasoningFacts(Facts, frozen=True, kw_only=True):
    """Reasoning in responses, and in the history of requests."""

    fields: tuple[str, ...] = ()  # members of response messages that hold it
    # the member of request messages that accepts it, `content` for thinking parts; None: none does
    replay_field: str | None = None
    replay: tuple[ReplayRule, ...] = ()
    signatures: bool = True  # signs reasoning, and requires the signature back
    # the models that accept a signature: the one that made it, or all of the account
    signature_scope: Literal["model", "account"] = "model"
    details: bool = False  # accepts `reasoning_details` in requests
    call_signature: str | None = None  # the member of a tool call that holds its signature, as a JSON pointer


class ToolFacts(Facts, frozen=True, kw_only=True):
    """Tool declarations and call ids."""

    max_count: int | None = 128  # accepted number of tools; None: any
    name_pattern: str = r"[a-zA-Z0-9_-]+"  # regular expression of accepted tool names
    name_limit: int = 64  # accepted length of tool names
    id_pattern: str = r"[\x20-\x7e]+"  # regular expression of accepted call ids
    id_limit: int = 40  # accepted length of call ids
    freeform: bool = True  # accepts freeform tools (`"type": "custom"`)
    hosted: bool = True  # accepts tools that the vendor runs
    client_run: bool | None = None  # accepts tools that the vendor defines and the client runs; None: as hosted ones
    deferred: bool = True  # accepts tools that a search loads (`defer_loading`)
    typed: bool = True  # accepts a `type` on functions of the Messages API
    bare_functions: bool = True  # accepts functions without `parameters`, or without `type` at the root of the schema
    strict: Literal["accepted", "ignored", "refused", "uniform"] = "accepted"  # uniform: all tools must agree on it
    empty_list: bool = True  # accepts `tools: []`
    schema: Literal["json", "moonshot"] = "json"  # the flavor of JSON Schema for parameters
    refused_keywords: tuple[str, ...] = ()  # schema keywords that it rejects
    web_search: bool = True  # accepts `web_search_options`
    result_media: bool = False  # accepts media in results


class ChoiceRule(Facts, frozen=True, kw_only=True):
    """Tool choices that a model accepts."""

    models: tuple[str, ...] = ALL_MODELS  # glob patterns of the models that the rule is for
    modes: tuple[str, ...] = CHOICES  # accepted modes of tool choice
    thinking_modes: tuple[str, ...] | None = None  # while the model thinks; None: the same


class ChoiceFacts(Facts, frozen=True, kw_only=True):
    """Tool choice."""

    rules: tuple[ChoiceRule, ...] = (ChoiceRule(),)


class EffortRule(Facts, frozen=True, kw_only=True):
    """The effort levels that a model accepts, in the host's words; empty if it rejects the setting."""

    models: tuple[str, ...] = ALL_MODELS  # glob patterns of the models that the rule is for
    words: tuple[str, ...] = ()  # accepted effort levels


class ThinkingSwitch(Facts, frozen=True, kw_only=True):
    """A member of the body that turns thinking on and off."""

    field: Literal["thinking", "enable_thinking", "think"]  # `thinking` is an object, the others are booleans
    models: tuple[str, ...] = ALL_MODELS  # models that accept it
    can_disable: tuple[str, ...] = ALL_MODELS  # models whose thinking it can also turn off


class ThinkingFacts(Facts, frozen=True, kw_only=True):
    """Effort and thinking."""

    field: Literal["reasoning_effort", "reasoning"] = "reasoning_effort"  # `reasoning` is an object
    efforts: tuple[EffortRule, ...] = (EffortRule(words=EFFORTS),)  # empty: not known
    switch: ThinkingSwitch | None = None
    default_on: tuple[str, ...] = ()  # models that think unless it is turned off
    stream_only: tuple[str, ...] = ()  # models that think only in streamed responses
    budget_field: str | None = None  # the member for a number of tokens


class FormatRule(Facts, frozen=True, kw_only=True):
    """Types of `response_format` that a model accepts."""

    models: tuple[str, ...] = ALL_MODELS  # glob patterns of the models that the rule is for
    types: tuple[str, ...] = ("text", "json_object", "json_schema")  # accepted types
    with_tools: bool = True  # accepts them beside tools


class LimitCap(Facts, frozen=True, kw_only=True):
    """The largest output limit that a model accepts."""

    models: tuple[str, ...] = ALL_MODELS  # glob patterns of the models that the rule is for
    tokens: int  # the largest limit


class OutputFacts(Facts, frozen=True, kw_only=True):
    """Length and format of responses."""

    limit_field: str = "max_completion_tokens"  # the preferred name of the output limit
    limit_fields: tuple[str, ...] = ("max_completion_tokens", "max_tokens")  # the names that have an effect
    caps: tuple[LimitCap, ...] = ()
    stop_limit: int | None = 4  # the number of stop sequences
    formats: tuple[FormatRule, ...] = (FormatRule(),)
    json_in_prompt_required: bool = False  # JSON output requires the word "json" in the prompt
    stream_usage: bool = True  # accepts `stream_options.include_usage`
    format_required: bool = False  # the Responses API requires `text.format` if there is `text`


class ModelFields(Facts, frozen=True, kw_only=True):
    """Members of the body that some models reject."""

    models: tuple[str, ...]  # glob patterns of these models
    fields: tuple[str, ...]  # the members that they reject


class FieldFacts(Facts, frozen=True, kw_only=True):
    """Other members of the body, as JSON pointers without the leading slash."""

    known: tuple[str, ...] = ()  # all members that have an effect; empty: not known
    unknown: Literal["accepted", "ignored", "refused"] = "accepted"  # treatment of all others
    refused: tuple[str, ...] = ()  # rejected with an error
    ignored: tuple[str, ...] = ()  # accepted without effect
    by_model: tuple[ModelFields, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)  # the host's names of members, by OpenAI's names
    user_pattern: str | None = None  # legal end-user ids; None: all
    max_temperature: float | None = None  # largest accepted temperature; None: any
    top_k: bool = False  # accepts `top_k`
    stores_by_default: bool = False  # stores responses unless `store` is false
    betas: tuple[str, ...] | None = None  # accepted values of `anthropic-beta`; None: all
    renamed_betas: dict[str, str] = field(default_factory=dict)  # the host's names of betas, by Anthropic's
    cache_key: bool = False  # finds the cache of a conversation by its `prompt_cache_key`


class ErrorTemplate(Facts, frozen=True, kw_only=True):
    """An error message of the host; names in braces stand for values of the request."""

    message: str  # the text
    status: int = 400  # the HTTP status
    type: str | None = None  # None: that of `Errors`
    code: str | None = None  # None: that of `Errors`


class ErrorFacts(Facts, frozen=True, kw_only=True):
    """Errors of the host."""

    # the body as JSON; the strings $message, $type, $code, $param and $status stand for values
    body: str = '{"error":{"message":"$message","type":"$type","param":"$param","code":"$code"}}'
    type: str | None = "invalid_request_error"  # the type of errors
    code: str | None = None  # the code of errors
    templates: dict[str, ErrorTemplate] = field(default_factory=dict)  # by the fact that a request violates


class HostProfile(Facts, frozen=True, kw_only=True, eq=False):
    """The part of a protocol that a host accepts. Profiles are compared by identity."""

    name: str
    title: str = ""  # the name to show to people
    protocol: str = "openai-chat"  # the protocol that the profile is for
    pass_through: bool = False  # leaves requests of clients of the same protocol unchanged
    recognition: Recognition = Recognition()
    address: AddressFacts = AddressFacts()
    messages: MessageFacts = MessageFacts()
    content: ContentFacts = ContentFacts()
    reasoning: ReasoningFacts = ReasoningFacts()
    tools: ToolFacts = ToolFacts()
    choice: ChoiceFacts = ChoiceFacts()
    thinking: ThinkingFacts = ThinkingFacts()
    output: OutputFacts = OutputFacts()
    fields: FieldFacts = FieldFacts()
    errors: ErrorFacts = ErrorFacts()
    sources: dict[str, FactSource] = field(default_factory=dict)  # by fact, such as `tools.max_count`, or group

    def accepts_cache_marks(self, model: str | None) -> bool:
        """Return whether a model accepts cache marks; None: any model."""
        return self.content.cache_marks and (model is None or matches_model(self.content.cache_mark_models, model))

    def lacks(self, feature: str) -> str:
        """Return the reason for a loss: the host has no such feature."""
        return f"{'the target' if self.pass_through else self.name} has no {feature}"

    def rejects(self, feature: str) -> str:
        """Return the reason for a loss: the host rejects a feature, or may do so if it is unknown."""
        return f"the host may reject {feature}" if self.pass_through else f"{self.name} rejects {feature}"


Rule = TypeVar("Rule", ReplayRule, ChoiceRule, EffortRule, FormatRule, LimitCap)


def rule_for(rules: tuple[Rule, ...], model: str) -> Rule | None:
    """Return the first rule that applies to a model."""
    return next((rule for rule in rules if matches_model(rule.models, model)), None)


@lru_cache(maxsize=4096)
def matches_model(patterns: tuple[str, ...], model: str) -> bool:
    """Return whether one of the glob patterns matches the name of a model."""
    name = model.lower()
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def documented(*references: str, note: str = "") -> FactSource:
    """Return the source of a fact from the host's documentation."""
    return FactSource(kind="documented", references=references, note=note)


def read_in_source(*references: str, note: str = "") -> FactSource:
    """Return the source of a fact from the server's code."""
    return FactSource(kind="source", references=references, note=note)


def from_types(*references: str) -> FactSource:
    """Return the source of a fact from the types of the host's SDK."""
    return FactSource(kind="types", references=references)


def peer(*references: str, note: str = "") -> FactSource:
    """Return the source of a fact from the code of another project that supports the host."""
    return FactSource(kind="peer", references=references, note=note)


def reported(*references: str, note: str = "") -> FactSource:
    """Return the source of a fact from bug reports."""
    return FactSource(kind="reported", references=references, note=note)


def unverified(note: str = "") -> FactSource:
    """Return the source of a fact that nobody confirmed; it is set to the safe value."""
    return FactSource(kind="unverified", note=note)
