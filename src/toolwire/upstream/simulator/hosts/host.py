"""A simulated host: checks requests against its profile, thinks like its models, and answers in its dialect."""

import msgspec
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import Thinking
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.surface import EndpointMatch
from toolwire.codec.validation import JsonObject, value_at
from toolwire.upstream.simulator.hosts.chat import check_chat
from toolwire.upstream.simulator.hosts.dialects import ChatDialect
from toolwire.upstream.simulator.hosts.messages import check_messages
from toolwire.upstream.simulator.hosts.platforms import InvokeDialect, check_frame, match_path, remove_frame
from toolwire.upstream.simulator.hosts.refusals import Check, refuse
from toolwire.upstream.simulator.hosts.responses import check_responses
from toolwire.upstream.simulator.hosts.settings import check_fields, is_thinking

_CHECKS: dict[str, Check] = {
    "openai-chat": check_chat,
    "anthropic": check_messages,
    "openai-responses": check_responses,
    "gemini": lambda body, profile: check_fields(body, profile, ()),
}

CHECKED_PROTOCOLS = tuple(_CHECKS)
"""Protocols whose requests a simulated host checks against its profile."""


class SimulatedHost:
    """The behavior of one host in one protocol."""

    def __init__(self, profile: HostProfile) -> None:
        self.profile = profile

    @property
    def keeps_vendor_rules(self) -> bool:
        """Return whether the rules of the protocol's vendor hold too."""
        return self.profile.name in ("openai", "azure", "bedrock", "vertex")

    @property
    def is_platform(self) -> bool:
        """Return whether the host serves the protocol at paths of its own."""
        return bool(self.profile.address.path)

    def check_request(self, body: bytes) -> None:
        """Raise `HostRefusal` if the host refuses the request. Other faults of the body are left to the codec."""
        for found in _CHECKS[self.profile.protocol](_decode_members(body), self.profile):
            raise refuse(found, self.profile)

    def remove_frame(self, body: bytes, betas: str, match: EndpointMatch) -> bytes:
        """Return the body of a platform in the vendor's form, or raise `HostRefusal`."""
        members = _decode_members(body)
        for found in check_frame(members, betas, self.profile):
            raise refuse(found, self.profile)
        return remove_frame(body, match, self.profile) if members else body

    def match(self, path: str) -> EndpointMatch | None:
        """Return the facts in a path of the platform; None if it is none."""
        return match_path(self.profile, path)

    def apply_defaults(self, request: Request, body: bytes) -> Request:
        """Return the request with the settings that the host assumes: thinking by default, and usage in streams."""
        members = _decode_members(body)
        effort = members.get("reasoning_effort") or value_at(members, "reasoning", "effort")
        if self.profile.protocol != "openai-chat":
            return request
        if request.thinking is None and is_thinking(members, self.profile, effort):
            request = replace(request, thinking=Thinking(enabled=True))
        return request if self.profile.output.stream_usage else replace(request, include_usage=True)

    def dialect(self) -> ChatDialect | InvokeDialect | None:
        """Return the dialect for the answer to one request; None if the host has none."""
        if self.profile.address.framing == "aws":
            return InvokeDialect()
        return ChatDialect(self.profile) if self.profile.protocol == "openai-chat" else None


def _decode_members(body: bytes) -> JsonObject:
    """Return the members of a body; none if it is no JSON object."""
    try:
        return msgspec.json.decode(body, type=JsonObject)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
