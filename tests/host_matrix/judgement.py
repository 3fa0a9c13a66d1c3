"""Judgement of a translated request: content that did not reach the host, and changes that no loss reports."""

from collections.abc import Iterator
from typing import Any

from tests.host_matrix.essentials import Body, Call, read_essentials, strings_in
from toolwire.codec.hosts.profile import HostProfile, matches_model

_BILLING_LINE = "x-anthropic-billing-header"
_CONTENT_MEMBERS = {"messages", "system", "input", "instructions", "contents", "systemInstruction", "tools", "model"}
# Transport settings, which every upstream has or lacks without a difference to the user.
_THINKING_MEMBERS = {"reasoning_effort", "reasoning", "thinking", "enable_thinking", "output_config"}
# Values that mean the same as an absent setting.
_DEFAULTS = {"/toolConfig/functionCallingConfig/mode": {"auto"}, "/tool_choice": {"auto"}}
_TRANSPORT = {"stream", "stream_options", "store", "include", "client_metadata"}


def find_losses(protocol: str, sent: Body, profile: HostProfile, received: Body) -> Iterator[str]:
    """Return content of the client's request that the host did not receive."""
    wanted, found = read_essentials(protocol, sent), read_essentials(profile.protocol, received)
    everything = "\n".join(strings_in(received))
    for text in wanted.texts:
        if text.strip() not in everything and not text.startswith(_BILLING_LINE):
            yield f"text {text[:60]!r}"
    if len(found.calls) != len(wanted.calls):
        yield f"{len(found.calls)} of {len(wanted.calls)} calls"
    for old, new in zip(wanted.calls, found.calls, strict=False):
        if not _is_same_call(old, new):
            yield f"call {old.name} became {new.name} {str(new.arguments)[:60]}"
        results = "\n".join(found.results.get(new.id, []))
        for text in wanted.results.get(old.id, []):
            if text.strip() not in results:
                yield f"result of {old.name}: {text[:60]!r}"
    for name, description in wanted.tools.items():
        match = next((seen for seen in found.tools if seen == name or seen.endswith(f"__{name}")), None)
        if match is None:
            yield f"tool {name}"
        elif description.strip() not in found.tools[match]:
            yield f"description of {name}"
    if sees_pictures(profile, str(received.get("model"))):
        for picture in wanted.pictures:
            if picture not in everything:
                yield "picture"


def _is_same_call(old: Call, new: Call) -> bool:
    """Return whether a call kept its name, apart from a namespace, and its arguments or text."""
    same_name = new.name == old.name or new.name.endswith(f"__{old.name}")
    return same_name and new.arguments in (old.arguments, {"input": old.arguments})


def sees_pictures(profile: HostProfile, model: str) -> bool:
    """Return whether the host takes pictures for a model."""
    return "image" in profile.content.media and matches_model(profile.content.image_models, model)


def find_unreported(sent: Body, received: Body, losses: list[dict[str, str]]) -> Iterator[str]:
    """Return settings of the client's request that are missing in the host's, and that no loss names."""
    paths = [loss["path"] for loss in losses]
    values = {_folded(leaf) for leaf in _leaves({n: v for n, v in received.items() if n not in _CONTENT_MEMBERS})}
    settings = {name: value for name, value in sent.items() if name not in _CONTENT_MEMBERS | _TRANSPORT}
    for pointer, value in _leaf_items(settings, ""):
        is_reported = any(pointer.startswith(path) or path.startswith(pointer) for path in paths)
        if is_reported or _folded(value) in values | _DEFAULTS.get(pointer, set()):
            continue
        if pointer.startswith("/context_management"):  # the gateway manages the context itself
            continue
        if pointer.startswith("/thinking") and (received.keys() & _THINKING_MEMBERS or _names_thinking(paths)):
            continue
        yield f"{pointer} = {str(value)[:40]}"


def _folded(value: Any) -> str:
    """Return a leaf in a form in which the words of all vendors are equal."""
    return str(value).lower()


def _names_thinking(paths: list[str]) -> bool:
    """Return whether a loss is about thinking."""
    return any(path.startswith(("/thinking", "/output_config/effort")) for path in paths)


def _leaf_items(value: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    """Return the pointer and value of every leaf."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if members is None:
        yield pointer, value
        return
    for name, inner in members:
        yield from _leaf_items(inner, f"{pointer}/{name}")


def _leaves(value: Any) -> Iterator[Any]:
    return (leaf for _, leaf in _leaf_items(value, ""))
