"""The declaration of Google's computer use in this protocol."""

from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.request import Request
from toolwire.canonical.tools import Computer, NativeTool
from toolwire.codec.computer import Form
from toolwire.protocols.gemini_interactions.wire import FAMILY
from toolwire.protocols.google_acting import make_call, make_result, write_calls
from toolwire.protocols.google_computer import declared, read_call, read_result, with_computers
from toolwire.protocols.google_tools import NEWER, OLDER


def computing(request: Request) -> Request:
    """The request with what its tool says of the screen."""
    return with_computers(request, FAMILY)


def _declare(wanted: Computer, model: str) -> tuple[NativeTool, Computer]:
    own, environment, excluded = declared(wanted, model)
    body: dict[str, Any] = {"type": "computer_use", "environment": environment}
    if excluded:
        body["excluded_predefined_functions"] = excluded
    raw = Raw(msgspec.json.encode(body))
    return NativeTool(protocol=FAMILY, kind="computer_use", body=raw, executor="client"), own


SCREEN = Form(
    family=FAMILY,
    kin=(OLDER, NEWER),
    arguments="arguments",
    read=partial(read_call, place="arguments"),
    write=write_calls,
    call=make_call,
    result=make_result,
    declare=_declare,
    seen=read_result,
    checks=True,
)
