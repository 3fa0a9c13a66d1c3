"""Protocols that Chat's codec serves: Chat itself, and OpenRouter's, which extends it."""

from collections.abc import Callable

from msgspec import Struct

from toolwire.codec.encoding.hosted_tools import HostedToolNames
from toolwire.codec.hosts.openai import OPENAI
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.models.gpt import gpt_info
from toolwire.codec.models.info import ModelInfo
from toolwire.protocols.openai_chat.wire import FAMILY

SEARCH_FIELD = "web_search_options"


class ChatVariant(Struct, frozen=True, kw_only=True):
    """The differences between two protocols of the family, besides the facts of their hosts."""

    protocol: str
    path: str  # of requests
    host: HostProfile  # describes the responses that clients expect
    hosted_tools: HostedToolNames
    server_tools: str | None = None  # prefix of the types of tools that the server runs, in `tools` and `tool_choice`
    service_tiers: tuple[str, ...]
    describe_model: Callable[[str], ModelInfo]


CHAT = ChatVariant(
    protocol=FAMILY,
    path="/v1/chat/completions",
    host=OPENAI,
    hosted_tools=HostedToolNames(
        family=FAMILY,
        names={"web_search": (SEARCH_FIELD,)},
        option_pointers={"web_search": {"context_size": "search_context_size", "location": "user_location"}},
    ),
    service_tiers=("auto", "default", "flex", "scale", "priority", "fast"),
    describe_model=gpt_info,
)
