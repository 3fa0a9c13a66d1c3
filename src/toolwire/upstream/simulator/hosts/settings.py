"""Settings that hosts check in every protocol: fields of the body, thinking, effort and tool choice."""

import re

from toolwire.codec.hosts.profile import HostProfile, matches_model, rule_for
from toolwire.codec.validation import Fields, JsonObject, number_of, object_of, text_of, value_at
from toolwire.upstream.simulator.hosts.refusals import Violations, model_of, violation


def value_at_pointer(body: JsonObject, pointer: str) -> object:
    """Return the value at a pointer without its leading slash, such as `stream_options/include_usage`."""
    return value_at(body, *pointer.split("/"))


def check_fields(body: JsonObject, profile: HostProfile, standard: Fields) -> Violations:
    """Check the members of a body. `standard` are those that the protocol defines."""
    fields, model = profile.fields, model_of(body)
    if fields.unknown == "refused":
        known = {name.partition("/")[0] for name in fields.known} or {field.name for field in standard} | host_fields(
            profile
        )
        known |= set(profile.address.moved)
        for name in body.keys() - known:
            yield violation("fields.unknown", name, name=name, value=body[name], path=name)
    for pointer in fields.refused:
        if value_at_pointer(body, pointer) is not None:
            name = pointer.replace("/", ".")
            yield violation("fields.refused", name, name=name, value="", path=pointer.replace("/", '","'))
    for rule in fields.by_model:
        for name in rule.fields if matches_model(rule.models, model) else ():
            if value_at_pointer(body, name) is not None:
                yield violation("fields.by_model", name, name=name, model=model, value=1)
    temperature = number_of(body.get("temperature"))
    if fields.max_temperature is not None and temperature is not None and temperature > fields.max_temperature:
        yield violation("fields.max_temperature", "temperature", limit=fields.max_temperature)


def host_fields(profile: HostProfile) -> frozenset[str]:
    """Return the members of the body by which a host turns thinking on and off."""
    switch, budget = profile.thinking.switch, profile.thinking.budget_field
    return frozenset(filter(None, (switch.field if switch else None, budget)))


def check_tool_count(count: int, profile: HostProfile) -> Violations:
    """Check the number of declared tools."""
    limit = profile.tools.max_count
    if limit is not None and count > limit:
        yield violation("tools.max_count", "tools", limit=limit, count=count)


def check_user(name: str, user: object, profile: HostProfile) -> Violations:
    """Check the id of the end user."""
    pattern = profile.fields.user_pattern
    if pattern is not None and isinstance(user, str) and re.fullmatch(pattern, user, re.DOTALL) is None:
        yield violation("fields.user_pattern", name, name=name, pattern=pattern, length=len(user))


def is_thinking(body: JsonObject, profile: HostProfile, effort: object) -> bool:
    """Return whether the model thinks: as the switch or the effort says, or else by default."""
    model = model_of(body)
    switch = profile.thinking.switch
    if profile.protocol != "openai-chat" or (switch is not None and switch.field == "thinking"):
        kind = text_of(object_of(body.get("thinking")).get("type"))
        if kind:
            return kind != "disabled"
    if isinstance(body.get("enable_thinking"), bool):
        return bool(body["enable_thinking"])
    if isinstance(effort, str):
        return effort != "none"
    return matches_model(profile.thinking.default_on, model)


def check_effort(body: JsonObject, profile: HostProfile, effort: object, name: str) -> Violations:
    """Check the word for the effort, and the switch of thinking, by the model."""
    model, thinking = model_of(body), profile.thinking
    if effort is not None:
        rule = rule_for(thinking.efforts, model)
        words = () if rule is None else rule.words
        if effort not in words:
            fact = "thinking.words" if words else "thinking.efforts"
            listed = " or ".join(words) or "none"
            yield violation(fact, name, effort=effort, word=effort, words=listed, model=model, name=name)
    switch = thinking.switch
    if switch is None or profile.protocol != "openai-chat" or body.get(switch.field) is None:
        return
    value = body[switch.field]
    if not matches_model(switch.models, model):
        yield violation("thinking.switch", switch.field, name=switch.field, model=model)
    is_off = value is False or object_of(value).get("type") == "disabled"
    if is_off and not matches_model(switch.can_disable, model):
        yield violation("thinking.can_disable", switch.field, model=model)


def check_stream_thinking(body: JsonObject, profile: HostProfile, *, thinking: bool) -> Violations:
    """Check that models which think only in streams do so."""
    if thinking and body.get("stream") is not True and matches_model(profile.thinking.stream_only, model_of(body)):
        yield violation("thinking.stream_only", "stream")


def check_choice(body: JsonObject, profile: HostProfile, mode: str | None, *, thinking: bool) -> Violations:
    """Check the mode of the tool choice, also while the model thinks."""
    if mode is None:
        return
    rule = rule_for(profile.choice.rules, model_of(body))
    shown = "specified" if mode == "named" else mode
    if rule is None or mode not in rule.modes:
        yield violation("choice.modes", "tool_choice", choice=shown)
    elif thinking and rule.thinking_modes is not None and mode not in rule.thinking_modes:
        yield violation("choice.thinking_modes", "tool_choice", choice=shown)
