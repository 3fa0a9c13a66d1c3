"""Adapter for Google's computer use in `generateContent` requests."""

from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.request import Request
from toolwire.canonical.tools import Computer, NativeTool
from toolwire.codec.encoding.computer import ComputerUseAdapter
from toolwire.protocols.gemini.wire import FAMILY
from toolwire.protocols.vendors.google.computer import (
    declare_computer,
    decode_computer_call,
    decode_computer_result,
    encode_computer_call,
    encode_computer_result,
    with_computer_tools,
)
from toolwire.protocols.vendors.google.computer_actions import encode_computer_actions
from toolwire.protocols.vendors.google.tools import GEMINI, INTERACTIONS

_ENVIRONMENT_PREFIX = "ENVIRONMENT_"


def with_computer(request: Request) -> Request:
    """Attach the decoded screen settings to each `computerUse` tool of the request."""
    return with_computer_tools(request, FAMILY)


def _declare_computer(client_computer: Computer, model: str) -> tuple[NativeTool, Computer]:
    """Declare computer use for a model; return the `computerUse` tool and the computer that it provides.

    The canonical computer describes the environment and actions that the model will use, to translate its calls.
    """
    target_computer, environment, excluded = declare_computer(client_computer, model)
    body: dict[str, Any] = {"environment": _ENVIRONMENT_PREFIX + environment.upper()}
    if excluded:
        body["excludedPredefinedFunctions"] = excluded
    raw = Raw(msgspec.json.encode(body))
    return NativeTool(
        protocol=FAMILY, kind="computer_use", name="computerUse", body=raw, executor="client"
    ), target_computer


COMPUTER_USE = ComputerUseAdapter(
    family=FAMILY,
    compatible_families=(GEMINI, INTERACTIONS),
    arguments_pointer="functionCall/args",
    decode_call=partial(decode_computer_call, location="functionCall/args"),
    encode_actions=encode_computer_actions,
    finish_call=encode_computer_call,
    finish_result=encode_computer_result,
    declare_tool=_declare_computer,
    decode_observation=decode_computer_result,
    has_safety_checks=True,
)
