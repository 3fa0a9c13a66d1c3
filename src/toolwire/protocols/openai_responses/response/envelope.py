"""The envelope of the Responses API's answers: who answers, and what was asked."""

from typing import Any

from toolwire.canonical.events import ResponseStart
from toolwire.canonical.node import Node
from toolwire.canonical.response import Response
from toolwire.codec.interface import Context, Target
from toolwire.codec.kept import as_object, restore
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.request.body import encode_request, settings_of
from toolwire.protocols.openai_responses.wire import ECHO, FAMILY, FunctionShape

_ASKED = (
    "background",
    "frequency_penalty",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "safety_identifier",
    "store",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)
_ASKED_IN = ("reasoning", "text")


def start_body(answer: Response | ResponseStart, plan: ItemPlan, context: Context) -> dict[str, Any]:
    """The envelope of an answer; for one of another protocol with everything that the API's own answers have: what was
    asked, or else the API's default."""
    id, model, created = answer.id, answer.model, answer.created
    if plan.home:
        whole = {"id": id, "created_at": created, "model": model}
        return {name: value for name, value in whole.items() if value is not None}
    named = id if id is not None and id.startswith("resp_") else f"resp_{id or plan.seed or 'tw'}"
    body: dict[str, Any] = {
        "id": named,
        "object": "response",
        "created_at": context.created if created is None else created,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": model or "",
        "output": [],
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": {},
    }
    if context.request is not None:
        asked = encode_request(settings_of(context.request), Target()).body
        body |= {name: asked[name] for name in _ASKED if asked.get(name) is not None}
        body |= {name: body[name] | _members_of(asked[name]) for name in _ASKED_IN if asked.get(name) is not None}
        body["tools"] = [_declared(tool) for tool in body["tools"]]
        held = context.request.continuation
        if held is not None and held.kind == "response":
            body["previous_response_id"] = held.id
        elif held is not None and held.kind == "conversation":
            body["conversation"] = {"id": held.id}
    return body


def _members_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else as_object(value)


def _declared(tool: Any) -> Any:
    """A tool as an answer repeats it: fields that a request may leave out are there."""
    if not isinstance(tool, FunctionShape):
        return tool
    whole = as_object(tool)
    return {"parameters": None, "strict": None} | whole


def finish(body: dict[str, Any], node: Node, plan: ItemPlan) -> dict[str, Any]:
    """Put back what the answer kept of this protocol."""
    restore(body, node, ECHO)
    restore(body, node, FAMILY)
    if not plan.home:
        body.setdefault("service_tier", "default")
    if "openai-responses:absent:object" not in node.form:
        body.setdefault("object", "response")
    return body
