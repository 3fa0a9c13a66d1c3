"""What is to be done with a call: whether it can be run at all, and whether it may."""

import json
from typing import Literal

from toolwire.canonical.content import ToolCall

from .callers import takes_calls_of_programs, takes_direct_calls
from .policy import Policy
from .state import Pending
from .toolset import Catalog, Tool
from .validate import Invalid, is_cut_off, read_arguments, unknown_tool

Caller = Literal["direct", "code"]
_ELSEWHERE: dict[Caller, str] = {
    "direct": "directly; nothing was run. Call it from code, with run_code",
    "code": "from code; nothing was run. Call it directly",
}


def consider(
    call: ToolCall, id: str, catalog: Catalog, policy: Policy, *, repair: bool = False, caller: Caller = "direct"
) -> Pending:
    tool = catalog.tools.get(call.name)
    if tool is None:
        known = [name for name, one in catalog.tools.items() if _takes(one, caller)]
        return Pending(call=call, id=id, refused=unknown_tool(call.name, known), kind="unknown_tool")
    if not call.complete and (call.shape == "freeform" or is_cut_off(call.arguments)):
        why = f"the arguments of {call.name} were cut off before their end; nothing was run"
        return Pending(call=call, id=id, tool=tool, refused=why, kind="truncated")
    try:
        arguments, repairs = read_arguments(tool, call.arguments, repair=repair)
    except Invalid as invalid:
        return Pending(call=call, id=id, tool=tool, refused=str(invalid), kind=invalid.kind)
    text = json.dumps(arguments, ensure_ascii=False) if repairs else call.arguments
    if not _takes(tool, caller):
        why = f"{call.name} may not be called {_ELSEWHERE[caller]}"
        return Pending(call=call, id=id, tool=tool, input=text, refused=why, kind="denied")
    pending = Pending(call=call, id=id, tool=tool, input=text, repairs=repairs, by_code=caller == "code")
    reconsider(pending, tool, policy)
    return pending


def reconsider(pending: Pending, tool: Tool, policy: Policy) -> None:
    """Set what the policy says of the arguments as they are now."""
    arguments = pending.arguments
    decision = policy.decide(tool, arguments)
    pending.verdict, pending.by = decision.verdict, decision.by
    if pending.verdict != "deny" and (reason := tool.always_ask(arguments)) is not None:
        pending.verdict, pending.by = "ask", reason


def _takes(tool: Tool, caller: Caller) -> bool:
    return takes_direct_calls(tool) if caller == "direct" else takes_calls_of_programs(tool)
