"""Tool calling between agents and models of any vendor's protocol, without silent losses."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwire.agent import Agent
    from toolwire.canonical.content import Citation, Inline, Media, Message, Text, ToolCall, Url
    from toolwire.canonical.errors import DecodeError, Loss, LossyTranslationError, ToolwireError
    from toolwire.canonical.request import Request
    from toolwire.canonical.response import Response, Usage
    from toolwire.canonical.tools import NativeTool
    from toolwire.gateway.config.sections import Config
    from toolwire.gateway.http_client import async_http_client, http_client
    from toolwire.journal.runs import RunInUse
    from toolwire.journal.sessions import SessionInUse
    from toolwire.mcp_servers import mcp_server
    from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest, Approver
    from toolwire.runtime.calls.terminal_approver import CallDeniedWarning
    from toolwire.runtime.function_tool import tool
    from toolwire.runtime.hosted_tools import CodeExecution, WebFetch, WebSearch
    from toolwire.runtime.model import Model
    from toolwire.runtime.policy import Policy
    from toolwire.runtime.run.context import RunContext
    from toolwire.runtime.run.events import (
        CallEnded,
        CallLogged,
        CallProgressed,
        CallProposed,
        CallRecord,
        CallStarted,
        HandedOff,
        RunEnded,
        RunStarted,
        RunWarning,
        SubAgentEvent,
        TextDelta,
        ThinkingDelta,
        TurnEnded,
        TurnStarted,
    )
    from toolwire.runtime.run.hooks import Denied, Hooks, ModelTurn, ProposedCall
    from toolwire.runtime.run.limits import RunLimits
    from toolwire.runtime.run.model_settings import ModelSettings
    from toolwire.runtime.run.result import AgentWarning, Run, RunFailed, RunStream
    from toolwire.runtime.run.session import Session
    from toolwire.runtime.run.state import PendingCall, RunState
    from toolwire.runtime.tool import RateLimit, Tool, ToolContext, ToolError, ToolOutput
    from toolwire.runtime.tools.browser.toolset import Browser
    from toolwire.tool_cycle import (
        check,
        continue_request,
        format_tool_result,
        format_tool_results,
        format_tools,
        parse_tool_calls,
    )
    from toolwire.translation.body import Translation, translate, translate_stream
    from toolwire.upstream.models.lookup import model_info

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentWarning",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "Browser",
    "CallDeniedWarning",
    "CallEnded",
    "CallLogged",
    "CallProgressed",
    "CallProposed",
    "CallRecord",
    "CallStarted",
    "Citation",
    "CodeExecution",
    "Config",
    "DecodeError",
    "Denied",
    "HandedOff",
    "Hooks",
    "Inline",
    "Loss",
    "LossyTranslationError",
    "Media",
    "Message",
    "Model",
    "ModelSettings",
    "ModelTurn",
    "NativeTool",
    "PendingCall",
    "Policy",
    "ProposedCall",
    "RateLimit",
    "Request",
    "Response",
    "Run",
    "RunContext",
    "RunEnded",
    "RunFailed",
    "RunInUse",
    "RunLimits",
    "RunStarted",
    "RunState",
    "RunStream",
    "RunWarning",
    "Session",
    "SessionInUse",
    "SubAgentEvent",
    "Text",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolwireError",
    "Translation",
    "TurnEnded",
    "TurnStarted",
    "Url",
    "Usage",
    "WebFetch",
    "WebSearch",
    "async_http_client",
    "check",
    "continue_request",
    "format_tool_result",
    "format_tool_results",
    "format_tools",
    "http_client",
    "mcp_server",
    "model_info",
    "parse_tool_calls",
    "tool",
    "translate",
    "translate_stream",
]

_MODULES = {
    "Agent": "agent",
    "AgentWarning": "runtime.run.result",
    "ApprovalAnswer": "runtime.calls.approval",
    "ApprovalRequest": "runtime.calls.approval",
    "Approver": "runtime.calls.approval",
    "Browser": "runtime.tools.browser.toolset",
    "CallDeniedWarning": "runtime.calls.terminal_approver",
    "CallEnded": "runtime.run.events",
    "CallLogged": "runtime.run.events",
    "CallProgressed": "runtime.run.events",
    "CallProposed": "runtime.run.events",
    "CallRecord": "runtime.run.events",
    "CallStarted": "runtime.run.events",
    "Citation": "canonical.content",
    "CodeExecution": "runtime.hosted_tools",
    "Config": "gateway.config.sections",
    "DecodeError": "canonical.errors",
    "HandedOff": "runtime.run.events",
    "Hooks": "runtime.run.hooks",
    "Inline": "canonical.content",
    "Loss": "canonical.errors",
    "LossyTranslationError": "canonical.errors",
    "Media": "canonical.content",
    "Message": "canonical.content",
    "Model": "runtime.model",
    "ModelSettings": "runtime.run.model_settings",
    "ModelTurn": "runtime.run.hooks",
    "NativeTool": "canonical.tools",
    "PendingCall": "runtime.run.state",
    "Policy": "runtime.policy",
    "ProposedCall": "runtime.run.hooks",
    "RateLimit": "runtime.tool",
    "Denied": "runtime.run.hooks",
    "Request": "canonical.request",
    "Response": "canonical.response",
    "Run": "runtime.run.result",
    "RunContext": "runtime.run.context",
    "RunEnded": "runtime.run.events",
    "RunFailed": "runtime.run.result",
    "RunInUse": "journal.runs",
    "RunLimits": "runtime.run.limits",
    "RunStarted": "runtime.run.events",
    "RunState": "runtime.run.state",
    "RunStream": "runtime.run.result",
    "RunWarning": "runtime.run.events",
    "Session": "runtime.run.session",
    "SessionInUse": "journal.sessions",
    "SubAgentEvent": "runtime.run.events",
    "Text": "canonical.content",
    "TextDelta": "runtime.run.events",
    "ThinkingDelta": "runtime.run.events",
    "Tool": "runtime.tool",
    "ToolCall": "canonical.content",
    "ToolContext": "runtime.tool",
    "ToolError": "runtime.tool",
    "ToolOutput": "runtime.tool",
    "ToolwireError": "canonical.errors",
    "Translation": "translation.body",
    "TurnEnded": "runtime.run.events",
    "TurnStarted": "runtime.run.events",
    "Url": "canonical.content",
    "Usage": "canonical.response",
    "WebFetch": "runtime.hosted_tools",
    "WebSearch": "runtime.hosted_tools",
    "async_http_client": "gateway.http_client",
    "check": "tool_cycle",
    "continue_request": "tool_cycle",
    "format_tool_result": "tool_cycle",
    "format_tool_results": "tool_cycle",
    "format_tools": "tool_cycle",
    "http_client": "gateway.http_client",
    "mcp_server": "mcp_servers",
    "model_info": "upstream.models.lookup",
    "parse_tool_calls": "tool_cycle",
    "tool": "runtime.function_tool",
    "translate": "translation.body",
    "translate_stream": "translation.body",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import toolwire` stays cheap."""
    if (module := _MODULES.get(name)) is None:
        raise AttributeError(f"module 'toolwire' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"toolwire.{module}"), name)
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return [*__all__, "__version__"]
