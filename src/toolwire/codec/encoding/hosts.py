"""Fit requests of any protocol to a host profile: ids and names, late system text, effort, members of the body."""

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, Thinking
from toolwire.codec.encoding.media import media_summary
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.encoding.tools import NameRules
from toolwire.codec.hosts.profile import EFFORTS, ChoiceRule, HostProfile, matches_model, rule_for
from toolwire.codec.losses import LossReport, SourcePath, element_pointers

FieldLocations = Mapping[str, tuple[SourcePath, str]]
SYSTEM_ROLES = ("system", "developer")

_ENCODED_FIELDS = frozenset({"messages", "input", "tools", "model", "stream", "max_tokens", "max_completion_tokens"})
"""Members that are encoded in the form that the host accepts."""


@lru_cache(maxsize=256)
def host_rules(host: HostProfile) -> IdAndNameRules:
    """Return the limits of a host on ids and names; memoized."""
    tools = host.tools
    names = NameRules(re.compile(tools.name_pattern), tools.name_limit)
    return IdAndNameRules(re.compile(tools.id_pattern), tools.id_limit, names, freeform=tools.freeform)


def with_host_names(rules: IdAndNameRules, host: HostProfile) -> IdAndNameRules:
    """Return a protocol's limits with those of a known host on names of tools."""
    return rules if host.pass_through else replace(rules, names=host_rules(host).names)


def rename_tools(request: Request, plan: EncodingPlan) -> Request:
    """Return a request of the host's protocol with legal names of tools, also in its history; each is reported."""
    if not plan.same_protocol or plan.target.host.pass_through:
        return request
    tools = [
        replace(tool, name=_legal_name(tool, ("tools", index), plan))
        if isinstance(tool, FunctionTool | FreeformTool)
        else tool
        for index, tool in enumerate(request.tools or ())
    ]
    declared = {tool.name for tool in request.tools or () if isinstance(tool, FunctionTool | FreeformTool)}
    messages = [_with_legal_names(message, index, declared, plan) for index, message in enumerate(request.messages)]
    if not plan.tools.mapping.tools:
        return request
    choice = request.tool_choice
    if choice is not None and choice.names:
        names = [replace(name, name=plan.tools.alias(name.name)) for name in choice.names]
        choice = replace(choice, names=tuple(names))
    renamed = None if request.tools is None else tuple(tools)
    return replace(request, tools=renamed, messages=tuple(messages), tool_choice=choice)


def _legal_name(tool: FunctionTool | FreeformTool, path: SourcePath, plan: EncodingPlan) -> str:
    """Return the name under which the host knows a tool; a new one is reported."""
    alias = plan.tools.alias(tool.name) if tool.namespace is None else tool.name
    if alias != tool.name:
        plan.report.approximated(path, "name", f"{plan.target.host.rejects('this name')}; sent as {alias}")
    return alias


def _with_legal_names(message: Message, index: int, declared: set[str], plan: EncodingPlan) -> Message:
    """Return a message with legal names of the tools that it calls; those that are not declared are reported."""
    parts = list(message.parts)
    for number, part in enumerate(parts):
        if not isinstance(part, ToolCall) or part.executor != "client" or part.namespace is not None or not part.name:
            continue
        if (alias := plan.tools.alias(part.name)) != part.name:
            parts[number] = replace(part, name=alias)
            if part.name not in declared:
                reason = f"{plan.target.host.rejects('this name')}; sent as {alias}"
                plan.report.approximated(("messages", index, "parts", number), "name", reason)
    is_same = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if is_same else replace(message, parts=tuple(parts))


def choice_rule(plan: EncodingPlan) -> ChoiceRule:
    """Return the tool choices that host and model accept."""
    return rule_for(plan.target.host.choice.rules, plan.target.model or "") or _NO_CHOICE


_NO_CHOICE = ChoiceRule(modes=("auto",))


def convert_system_messages(request: Request, start: int, plan: EncodingPlan) -> Request:
    """Return the request with system messages from index `start` on as user text in reminder tags.

    Many chat templates reject them anywhere but at the start. They stay in place, so that the prompt prefix is stable.
    """
    for index in range(start, len(request.messages)):
        if request.messages[index].role in SYSTEM_ROLES:
            break
    else:
        return request
    messages = list(request.messages)
    for index in range(start, len(messages)):
        message = messages[index]
        if message.role in SYSTEM_ROLES and any(isinstance(part, Text) for part in message.parts):
            messages[index] = _as_user_reminder(message)
            reason = f"{plan.target.host.rejects('late system messages')}; sent as a user reminder"
            plan.report.approximated(("messages", index), "role", reason)
    return replace(request, messages=tuple(messages))


def _as_user_reminder(message: Message) -> Message:
    """Return the system message as a user message with its text in `system-reminder` tags."""
    parts = [
        replace(part, text=f"<system-reminder>\n{part.text}\n</system-reminder>") if isinstance(part, Text) else part
        for part in message.parts
    ]
    return replace(message, role="user", parts=tuple(parts))


def accepts_media(kind: str, plan: EncodingPlan) -> bool:
    """Tell whether host and model accept media of a kind."""
    content, info = plan.target.host.content, plan.target.model_info
    if kind != "image":
        return kind in content.media
    sees = info is None or info.vision is not False
    return sees and kind in content.media and matches_model(content.image_models, plan.target.model or "")


def replace_media(request: Request, plan: EncodingPlan) -> Request:
    """Return the request with media that host or model reject as a line of text; each is reported."""
    messages = list(request.messages)
    for index, message in enumerate(messages):
        path: SourcePath = ("messages", index, "parts")
        parts = [_without_media(part, (*path, number), plan) for number, part in enumerate(message.parts)]
        if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
            messages[index] = replace(message, parts=tuple(parts))
    return replace(request, messages=tuple(messages))


def _without_media(part: Part, path: SourcePath, plan: EncodingPlan) -> Part:
    """Return a part, or the content of a result, with text in place of media that the host rejects."""
    if isinstance(part, ToolResult) and part.content:
        content = [_without_media(inner, (*path, "content", index), plan) for index, inner in enumerate(part.content)]
        is_same = all(new is old for new, old in zip(content, part.content, strict=True))
        return part if is_same else replace(part, content=tuple(content))
    if not isinstance(part, Media) or accepts_media(part.kind, plan):
        return part
    plan.report.approximated(path, "", f"{plan.target.host.rejects(f'{part.kind} content')}; sent as a line of text")
    return Text(text=media_summary(part), at=part.at, cache=part.cache)


def nearest_effort(effort: str, words: tuple[str, ...]) -> str:
    """Return the word for the nearest effort; of two equally near ones that nearer to `high`."""
    ranked = [word for word in words if word in EFFORTS and (word != "none" or effort == "none")]
    if not ranked or effort not in EFFORTS:
        return next(word for word in reversed(words))
    rank, high = EFFORTS.index(effort), EFFORTS.index("high")
    return min(ranked, key=lambda word: (abs(EFFORTS.index(word) - rank), abs(EFFORTS.index(word) - high)))


def report_fitted_effort(thinking: Thinking | None, plan: EncodingPlan, reason: str, *, is_sent: bool) -> None:
    """Report how the host gets the effort, in place of the loss that was reported when the effort was derived."""
    field = "effort"
    if thinking is not None and thinking.effort is None:
        field = "enabled" if thinking.budget_tokens is None else "budget_tokens"
    plan.report.retract_approximated(("thinking",), field)
    (plan.report.approximated if is_sent else plan.report.dropped)(("thinking",), field, reason)


USER_PATTERN = r".{0,64}"


def encode_user(user: str, report: LossReport, pattern: str | None = USER_PATTERN) -> str:
    """Return the end user's id; an id that does not match becomes a stable digest. Without a pattern, all match."""
    if pattern is None or re.fullmatch(pattern, user):
        return user
    report.approximated((), "end_user", "too long or not plain: sent as a digest")
    return hashlib.sha256(user.encode(errors="surrogatepass")).hexdigest()


def fit_betas(betas: str, host: HostProfile, report: LossReport) -> str:
    """Return the value of `anthropic-beta` without names that the host rejects; each is reported."""
    if host.fields.betas is None or host.pass_through:
        return betas
    names = []
    for name in filter(None, map(str.strip, betas.split(","))):
        renamed = host.fields.renamed_betas.get(name, name)
        if renamed in host.fields.betas:
            names.append(renamed)
        else:
            report.dropped((), "", host.rejects(f"the beta {name}"), severity="warning")
    return ",".join(dict.fromkeys(names))


class _BodyRules(Struct, frozen=True):
    """Names of members that a host and model do not accept."""

    known: frozenset[str]  # empty: all
    refused: frozenset[str]
    ignored: frozenset[str]
    nested: tuple[tuple[str, str, bool], ...]  # member, member of the member, and whether it is refused

    def rejected(self, body: Mapping[str, Any], *, is_unknown_refused: bool) -> list[tuple[str, bool]]:
        """Return the members of a body that the host does not accept, each with whether it refuses or ignores it."""
        if self.known and not body.keys() <= self.known:
            unknown = [(name, is_unknown_refused) for name in body if name not in self.known]
        else:
            unknown = []
        if self.refused.isdisjoint(body) and self.ignored.isdisjoint(body):
            return unknown
        found = dict(unknown)
        for name in body:
            if name in self.refused or (name in self.ignored and name not in found):
                found[name] = name in self.refused
        return list(found.items())


@lru_cache(maxsize=256)
def _body_rules(host: HostProfile, model: str) -> _BodyRules:
    """Return the rules about members of the body; memoized."""
    fields = host.fields
    by_model = [name for rule in fields.by_model if matches_model(rule.models, model) for name in rule.fields]
    refused = (*fields.refused, *by_model)
    return _BodyRules(
        frozenset(fields.known) | _ENCODED_FIELDS if fields.known else frozenset(),
        frozenset([name for name in refused if "/" not in name]),
        frozenset([name for name in fields.ignored if "/" not in name]),
        tuple(
            (name.partition("/")[0], name.partition("/")[2], name in refused)
            for name in (*refused, *fields.ignored)
            if "/" in name
        ),
    )


def fit_fields(request: Request, body: dict[str, Any], plan: EncodingPlan, locations: FieldLocations) -> None:
    """Remove from `body`, and report, members that the host rejects; for clients of other protocols also ignored ones.

    Rename those with another name at the host. `locations` are the canonical locations of members, by name; all others
    are extras.
    """
    host = plan.target.host
    rules = _body_rules(host, plan.target.model or "")
    for name, other in host.fields.renamed.items():
        if name in body:
            body[other] = body.pop(name)
            if plan.same_protocol:
                plan.report.approximated(*_location(name, locations), f"{host.rejects(name)}; sent as {other}")
    limit, temperature = host.fields.max_temperature, body.get("temperature")
    if limit is not None and isinstance(temperature, int | float) and temperature > limit:
        body["temperature"] = limit
        plan.report.approximated(("sampling",), "temperature", host.rejects(f"a temperature over {limit}"))
    for name, is_refused in rules.rejected(body, is_unknown_refused=host.fields.unknown == "refused"):
        if is_refused or not plan.same_protocol:
            reason = host.rejects(name) if is_refused else f"{host.name} ignores {name}"
            for pointer in _dropped_pointers(request, name, body.pop(name), locations):
                path, field = _location(pointer, locations)
                if not path or getattr(request, str(path[0])) is not None:  # otherwise the encoder added it
                    plan.report.dropped(path, field, reason)
    _fit_nested_fields(body, rules, plan)


def _fit_nested_fields(body: dict[str, Any], rules: _BodyRules, plan: EncodingPlan) -> None:
    """Remove from objects in `body`, and report, members that the host does not accept."""
    host = plan.target.host
    for name, inner, is_refused in rules.nested:
        members = body.get(name)
        if not isinstance(members, dict) or inner not in members or (plan.same_protocol and not is_refused):
            continue
        del members[inner]
        if not members:
            del body[name]
        reason = host.rejects(f"{name}.{inner}") if is_refused else f"{host.name} ignores {name}.{inner}"
        plan.report.dropped((), f"//{name}/{inner}", reason)


def _dropped_pointers(request: Request, name: str, value: Any, locations: FieldLocations) -> list[str]:
    """Return the pointers to report for a dropped member: its own, or those of the members or elements of an extra."""
    if name in locations:
        return [name]
    if isinstance(value, dict):
        return [f"{name}/{inner}" for inner in value] or [name]
    original = next((fields[name] for fields in (request.extras or {}).values() if name in fields), None)
    if original is not None and bytes(original)[:1] == b"[":
        return element_pointers(original, name) or [name]
    return [name]


def _location(name: str, locations: FieldLocations) -> tuple[SourcePath, str]:
    """Return the canonical location of a member of the body."""
    return locations.get(name, ((), f"//{name}"))
