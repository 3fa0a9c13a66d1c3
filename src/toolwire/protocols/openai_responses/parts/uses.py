"""Items of searches and code that a provider ran, to what they mean in common words and back, for clients to read."""

from typing import Any, TypeGuard

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Foreign, HostedUse, Inline, Media, Message, Part, ToolCall, ToolResult
from toolwire.canonical.tools import HostedKind
from toolwire.codec.hosted import asked, use_of
from toolwire.codec.losses import Trail
from toolwire.codec.turns import Placed

from .plan import ItemPlan

USES: dict[str, HostedKind] = {"web_search_call": "web_search", "code_interpreter_call": "code_execution"}
PICTURE = "image_generation_call"

_decode = msgspec.json.Decoder().decode


# ---- decode


def decode_use(kind: str, members: dict[str, Raw]) -> HostedUse:
    id = _decode(members.get("id", b"null"))
    said = {name: _decode(raw) for name, raw in members.items() if name in ("code", "results")}
    meaning = USES[kind]
    if isinstance(action := _decode(members.get("action", b"null")), dict):
        said |= action
        meaning = "web_fetch" if action.get("type") in ("open_page", "find_in_page") else meaning
    outputs = _decode(members.get("outputs", b"null"))
    logs = [one.get("logs") for one in outputs if isinstance(one, dict)] if isinstance(outputs, list) else []
    if found := [log for log in logs if isinstance(log, str)]:
        said["output"] = "\n".join(found)
    use = use_of(meaning, said, id=id if isinstance(id, str) else None)
    return replace(use, failed=True) if bytes(members.get("status", b"")) == b'"failed"' else use


def decode_picture(members: dict[str, Raw]) -> Media | None:
    """What a tool drew."""
    data, form = (_decode(members.get(name, b"null")) for name in ("result", "output_format"))
    if not isinstance(data, str) or not data:
        return None
    media_type = f"image/{form}" if isinstance(form, str) else "image/png"
    return Media(kind="image", source=Inline(data=data, at=""), media_type=media_type, at="/result")


# ---- encode


def was_run(part: Part, plan: ItemPlan) -> TypeGuard[ToolCall | ToolResult | Foreign]:
    """Whether another provider ran it; one that tells a call and its result at once does so to clients only."""
    if isinstance(part, Foreign):
        return part.use is not None and plan.answering and not plan.home
    return isinstance(part, ToolCall | ToolResult) and part.executor == "server"


def encode_use(part: ToolCall | ToolResult | Foreign, placed: Placed, plan: ItemPlan, at: int) -> list[Any]:
    """A call waits for its result, since one item tells both. `at` is the place of the next item."""
    if part.use is None:
        raise TypeError("nothing that others ran")
    plan.report.approximated(placed.trail, "", "what another provider ran, told as an item of the target's")
    if isinstance(part, Foreign):
        return [_encode_item(part.use, "failed" if part.use.failed else "completed", plan, placed.trail, at)]
    if isinstance(part, ToolCall):
        plan.asked[part.id] = asked(part), placed.trail
        return []
    use, _ = plan.asked.pop(part.call_id, (part.use, placed.trail))
    found = replace(use, pages=part.use.pages, output=part.use.output)
    return [_encode_item(found, "completed" if part.status == "ok" else "failed", plan, placed.trail, at)]


def unanswered(plan: ItemPlan, at: int) -> list[Any]:
    """The calls whose results did not come."""
    uses, plan.asked = plan.asked, {}
    called = enumerate(uses.values(), at)
    return [_encode_item(use, "incomplete", plan, trail, place) for place, (use, trail) in called]


def _encode_item(use: HostedUse, status: str, plan: ItemPlan, trail: Trail, at: int) -> dict[str, Any]:
    own: Message = plan.envelope("ci" if use.kind == "code_execution" else "ws")
    item: dict[str, Any] = {"id": own.id, "status": status}
    if use.kind == "code_execution":
        outputs = None if use.output is None else [{"type": "logs", "logs": use.output}]
        plan.report.invented(trail, "", f"/output/{at}/container_id", "the target names a container: there is none")
        return {"type": "code_interpreter_call", **item, "container_id": "", "code": use.code, "outputs": outputs}
    if use.kind == "web_fetch":
        url = use.urls[0] if use.urls else use.pages[0].url if use.pages else None
        return {"type": "web_search_call", **item, "action": {"type": "open_page", "url": url}}
    sources = [{"type": "url", "url": page.url} for page in use.pages]
    action = {"type": "search", "query": "; ".join(use.queries), "queries": list(use.queries), "sources": sources}
    return {"type": "web_search_call", **item, "action": action}
