"""Optional settings that a host refuses: find them in its error, and leave them out of a body.

A host that answers 400 or 422 often names the setting that it does not accept. `find_refusals` recognizes the messages
of known hosts for a closed list: effort and thinking, the name of the output limit, parallel calls, `strict`, stream
options, and members of the body that are not essential. Content and tools are never among them.
"""

import re
from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.errors import ApiError
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.reader import decode_elements, decode_members

REFUSAL_STATUSES = (400, 422)
LIMIT_REFUSALS = 32
"""Settings that are left out of one body at most."""

_LIMIT_MESSAGE = 8192
_LIMIT_VALUE = 64


class RefusedSetting(Struct, frozen=True):
    """A setting that a host refuses."""

    member: str  # JSON pointer without the leading slash; `*` stands for all elements of a list
    replacement: str | None = None  # the member to send its value as, unless the body has that, too
    value: bytes | None = None  # the JSON of the only value that is refused; None: all values are

    @property
    def setting(self) -> str:
        """Return the name of the setting for metrics; `other` for members that clients may name freely."""
        if self.member.endswith("/strict"):
            return "strict"
        return self.member if self.member in LOCATIONS else "other"


class Omission(Struct, frozen=True):
    """A setting that was left out of a body."""

    pointer: str  # its position in the body, without the leading slash
    refusal: RefusedSetting


_EFFORT: tuple[SourcePath, str] = ("thinking",), "effort"
_THINKING_MEMBERS = (
    "reasoning_effort",
    "reasoning",
    "thinking",
    "enable_thinking",
    "thinking_budget",
    "think",
    "output_config/effort",
    "generationConfig/thinkingConfig",
    "generation_config/thinking_level",
    "generation_config/thinking_summaries",
)
_EFFORT_MEMBERS = (
    "reasoning_effort",
    "reasoning/effort",
    "think",
    "output_config/effort",
    "generation_config/thinking_level",
)
_STRICT_MEMBERS = ("tools/*/function/strict", "tools/*/strict")
_LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_SAMPLING = ("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty")

LOCATIONS: dict[str, tuple[SourcePath, str]] = {
    **dict.fromkeys((*_THINKING_MEMBERS, *_EFFORT_MEMBERS), _EFFORT),
    **{name: (("sampling",), name) for name in _SAMPLING},
    **dict.fromkeys(_LIMITS, (("sampling",), "max_tokens")),
    "parallel_tool_calls": (("tool_choice",), "parallel"),
    "tool_choice/disable_parallel_tool_use": (("tool_choice",), "parallel"),
    "stream_options": ((), "include_usage"),
    "stream_options/include_usage": ((), "include_usage"),
    "stream_options/include_obfuscation": ((), "//stream_options/include_obfuscation"),
    "metadata": ((), "labels"),
    "user": ((), "end_user"),
    "service_tier": ((), "tier"),
    "store": (("continuation",), "store"),
    "verbosity": (("output",), "verbosity"),
    "text/verbosity": (("output",), "verbosity"),
    "prompt_cache_key": ((), "//prompt_cache_key"),
    "prompt_cache_retention": ((), "//prompt_cache_retention"),
    "prompt_cache_options": ((), "//prompt_cache_options"),
    "include": ((), "//include"),
}
"""Canonical location of each setting, by its member of the body."""

_NESTED = tuple(member for member in (*LOCATIONS, *_STRICT_MEMBERS) if "/" in member)

_ESSENTIAL = frozenset(
    {
        # content and model
        *("model", "messages", "input", "contents", "system", "instructions", "system_instruction"),
        *("systemInstruction", "prompt", "previous_response_id", "previous_interaction_id", "conversation", "agent"),
        *("cachedContent", "container", "anthropic_version", "options", "config", "generationConfig"),
        "generation_config",
        # tools
        *("tools", "tool_choice", "toolConfig", "tool_config", "functions", "function_call", "mcp_servers"),
        *("max_tool_calls", "web_search_options", "plugins"),
        # form and extent of the response
        *("stream", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "stop", "stop_sequences"),
        *("response_format", "format", "text", "output_config", "modalities", "audio", "logprobs", "top_logprobs"),
        *("background", "prefix", "suffix"),
        # safety
        *("guardrails", "guardrailConfig", "safe_prompt", "safetySettings", "safety_settings", "moderation"),
        *("inference_geo", "provider"),
    }
)
"""Members that are never left out, besides the settings nested in them."""

_QUOTE = r"""["'`]"""
_NAME = r"[A-Za-z_$][\w.$\[\]-]{0,99}"
_NAMES = rf"({_QUOTE}?{_NAME}{_QUOTE}?(?:\s*,\s*{_QUOTE}?{_NAME}{_QUOTE}?)*)"
_NOUN = r"(?:parameter|argument|field|property|propertie|param|key|name|input|setting|option)s?"
_UNKNOWN = r"(?:unsupported|unknown|unrecognized|unexpected)"
_REFUSED = r"(?:not supported|unsupported|unknown|unrecognized|unexpected|not allowed|not permitted|not available)"
_NAMED_SETTINGS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # OpenAI, Azure: `Unsupported parameter: 'x'`, `Unrecognized request arguments supplied: x, y`
        rf"{_UNKNOWN}\s+(?:\w+\s+)?{_NOUN}(?:\s+supplied)?\s*:\s*{_NAMES}",
        # Gemini: `Unknown name "x" at 'generation_config': Cannot find field.`
        rf"{_UNKNOWN}\s+(?:\w+\s+)?{_NOUN}\s+({_QUOTE}{_NAME}{_QUOTE}(?:\s+at\s+{_QUOTE}{_NAME}{_QUOTE})?)",
        # Groq, Cerebras: `property 'x' is unsupported`
        rf"{_NOUN}\s+{_QUOTE}?({_NAME}){_QUOTE}?\s+(?:is|are)\s+{_REFUSED}",
        rf"{_QUOTE}({_NAME}){_QUOTE}\s+(?:is|are)\s+{_REFUSED}",
        # xAI: `Model x does not support parameter reasoningEffort.`; Anthropic: `does not support the effort parameter`
        rf"does(?: not|n't) support (?:the )?{_NOUN}\s*:?\s*{_NAMES}",
        rf"does(?: not|n't) support (?:the )?{_QUOTE}?({_NAME}){_QUOTE}? {_NOUN}",
        # Anthropic: `x: Extra inputs are not permitted`; Fireworks: `Extra inputs are not permitted, field: 'x'`
        rf"({_NAME}): extra inputs are not permitted",
        rf"extra inputs are not permitted, {_NOUN}: {_QUOTE}?({_NAME}){_QUOTE}?",
    )
)
# Mistral, vLLM, NVIDIA: pydantic's `{"type": "extra_forbidden", "loc": ["body", "x"], ..}`, as JSON or Python text
_FORBIDDEN = re.compile(r"extra_forbidden['\"],\s*['\"]loc['\"]\s*:\s*[\[(]([^\])]*)[\])]")
_REFUSED_VALUE = re.compile(
    rf"(?:unsupported|invalid) value:? {_QUOTE}?({_NAME})|({_NAME}){_QUOTE}? must be one of|"
    rf"does(?: not|n't) support {_QUOTE}({_NAME}){_QUOTE} value|\b(think|reasoning|effort) value (?:{_QUOTE}|is)|"
    rf"invalid (think|reasoning|effort) value",
    re.IGNORECASE,
)
_NO_THINKING = re.compile(
    r"does(?: not|n't) support (?:\w+ )?(?:thinking|reasoning)\b|"
    rf"\b(?:thinking|reasoning)(?: \w+){{0,2}} (?:is|are) {_REFUSED}",
    re.IGNORECASE,
)
# Thinking is refused only beside something else, or something else because of it.
_COMBINED = re.compile(r"tool|messages?[.\[]|content|budget|temperature|stream|while|when\b", re.IGNORECASE)
_ANY_REFUSAL = re.compile(rf"{_REFUSED}|does(?: not|n't) support", re.IGNORECASE)
_CONTENT = re.compile(r"\b(?:messages|contents|input)['\"]?[.\[]\W?\d")
_LEGAL_MEMBER = re.compile(r"[\w.$-]{1,64}")


# ---- find


def find_refusals(protocol: str, body: bytes, error: ApiError) -> tuple[RefusedSetting, ...]:
    """Return the settings of a body that an error of its host refuses; empty if it names none of the closed list."""
    if error.status not in REFUSAL_STATUSES:
        return ()
    try:
        members = decode_members(body)
    except msgspec.DecodeError:
        return ()
    if not all(map(_LEGAL_MEMBER.fullmatch, members)):  # the error may quote names that imitate a refusal
        return ()
    found: dict[str, RefusedSetting] = {}
    for refusal in _refusals(protocol, members, error):
        found.setdefault(refusal.member, refusal)
    return tuple(found.values())[:LIMIT_REFUSALS]


def _refusals(protocol: str, members: dict[str, Raw], error: ApiError) -> Iterator[RefusedSetting]:
    """Yield the refused settings that an error names by value, by name, or in words."""
    message = error.message[:_LIMIT_MESSAGE]
    if _CONTENT.search(f"{error.param or ''} {message}"):
        return
    if (value := _REFUSED_VALUE.search(message)) is not None:
        yield from _refused_values(next(filter(None, value.groups())), members)
        return
    paths = [*_named_paths(message)]
    if error.param and _ANY_REFUSAL.search(message):
        paths.append(_split_path(error.param))
    named = [refusal for path in paths for refusal in _locate(path, protocol, members)]
    yield from named
    if not named and _NO_THINKING.search(message) and not _COMBINED.search(message):
        for member in _THINKING_MEMBERS:
            yield from _thinking_refusals(member, members)


def _named_paths(message: str) -> Iterator[list[str]]:
    """Yield the path of each setting that a message names as refused."""
    for pattern in _NAMED_SETTINGS:
        for match in pattern.finditer(message):
            name, _, owner = match[1].partition(" at ")
            if owner:
                yield _split_path(owner) + _split_path(name)
            else:
                yield from map(_split_path, name.split(","))
    for match in _FORBIDDEN.finditer(message):
        yield _split_path(match[1].replace(",", "."))


def _split_path(path: str) -> list[str]:
    """Return the steps of a path such as `body.tools[0].strict`, without the leading `body`."""
    steps = [step for step in re.split(r"[\s.\[\]\"'`]+", path) if step]
    return steps[1:] if steps[:1] == ["body"] else steps


def _locate(path: list[str], protocol: str, members: dict[str, Raw]) -> Iterator[RefusedSetting]:
    """Yield the settings of a body at a path; none for essential members."""
    first = {_plain(name): name for name in members}.get(_plain(path[0])) if path else None
    if first in _LIMITS and len(path) == 1 and protocol in ("openai-chat", "openrouter"):
        yield RefusedSetting(first, _LIMITS[first])
    elif first in _THINKING_MEMBERS:
        yield from _thinking_refusals(first, members)
    elif first is not None and first not in _ESSENTIAL:
        nested = "/".join([first, *path[1:]])
        yield RefusedSetting(nested if nested in _NESTED and _holds(members, nested) else first)
    else:
        yield from (
            RefusedSetting(member) for member in _NESTED if _names_nested(path, member) and _holds(members, member)
        )


def _names_nested(path: list[str], member: str) -> bool:
    """Return whether a path leads to a nested setting, or is its name alone."""
    owner, *_, name = map(_plain, member.split("/"))
    steps = [_plain(step) for step in path]
    return name in steps and (len(steps) == 1 or steps[0] == owner)


def _thinking_refusals(member: str, members: dict[str, Raw]) -> Iterator[RefusedSetting]:
    """Yield a thinking setting that a body has; beside `reasoning` also the request for encrypted reasoning."""
    if not _holds(members, member):
        return
    yield RefusedSetting(member)
    if member == "reasoning" and bytes(members.get("include", b"")) == b'["reasoning.encrypted_content"]':
        yield RefusedSetting("include")


def _refused_values(name: str, members: dict[str, Raw]) -> Iterator[RefusedSetting]:
    """Yield the effort of a body if `name` is one of its names, with the value that is refused."""
    steps = _split_path(name)
    plain = {_plain(step) for step in steps[-1:]}
    for member in _EFFORT_MEMBERS:
        is_named = _plain(member) in plain or _plain(member.rpartition("/")[2]) in plain or plain & {"reasoning"}
        if is_named and (value := _value_at(members, member)) is not None and len(value) <= _LIMIT_VALUE:
            yield RefusedSetting(member, value=value)


def _plain(name: str) -> str:
    """Return a name without the differences between `snake_case` and `camelCase`."""
    return name.replace("_", "").lower()


def _holds(members: dict[str, Raw], member: str) -> bool:
    """Return whether a body has a setting."""
    return bool(_remove(dict(members), RefusedSetting(member)))


def _value_at(members: dict[str, Raw], member: str) -> bytes | None:
    """Return the JSON of a setting, None if the body has none."""
    first, _, rest = member.partition("/")
    value = members.get(first)
    if value is None or not rest:
        return None if value is None else bytes(value)
    return _value_at(_object_members(value), rest)


def _object_members(value: Raw) -> dict[str, Raw]:
    """Return the members of an object; empty for other values."""
    return decode_members(value) if bytes(value).lstrip()[:1] == b"{" else {}


# ---- leave out


def omit_refused(body: bytes, refusals: tuple[RefusedSetting, ...]) -> tuple[bytes, list[Omission]]:
    """Return a body without refused settings, and those that it had."""
    members = decode_members(body)
    omissions = [
        Omission(pointer, refusal)
        for refusal in refusals
        if refusal.value is None or _value_at(members, refusal.member) == refusal.value
        for pointer in _remove(members, refusal)
    ]
    return (msgspec.json.encode(members), omissions) if omissions else (body, [])


def _remove(members: dict[str, Raw], refusal: RefusedSetting, member: str | None = None) -> list[str]:
    """Remove a setting from `members`, or rename it, and return the pointers at which it stood."""
    first, _, rest = (refusal.member if member is None else member).partition("/")
    if (value := members.get(first)) is None:
        return []
    if not rest:
        del members[first]
        if refusal.replacement is not None:
            members.setdefault(refusal.replacement, value)
        return [first]
    if rest.startswith("*/"):
        return _remove_from_elements(members, refusal, first, rest[2:])
    inner = _object_members(value)
    pointers = _remove(inner, refusal, rest)
    if pointers and inner:
        members[first] = Raw(msgspec.json.encode(inner))
    elif pointers:
        del members[first]
    return [f"{first}/{pointer}" for pointer in pointers]


def _remove_from_elements(members: dict[str, Raw], refusal: RefusedSetting, first: str, rest: str) -> list[str]:
    """Remove a setting from each object of a list, and return the pointers at which it stood."""
    value = members[first]
    if bytes(value).lstrip()[:1] != b"[":
        return []
    elements, pointers = decode_elements(value), []
    for index, element in enumerate(elements):
        inner = _object_members(element)
        if removed := _remove(inner, refusal, rest):
            elements[index] = Raw(msgspec.json.encode(inner))
            pointers += [f"{first}/{index}/{pointer}" for pointer in removed]
    if pointers:
        members[first] = Raw(msgspec.json.encode(elements))
    return pointers
