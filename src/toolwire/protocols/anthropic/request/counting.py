"""`/v1/messages/count_tokens`: the request without what only an answer needs."""

import msgspec
from msgspec import Struct

from toolwire.codec.counting import Counting, only

_COUNTED = frozenset(
    (
        *("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed"),
        *("mcp_servers", "context_management"),
    )
)


class CountAnswer(Struct):
    input_tokens: int


COUNTING = Counting(
    path=lambda path: f"{path}/count_tokens",
    wrap=lambda body, _: only(body, _COUNTED),
    unwrap=lambda body: body,
    encode_count=CountAnswer,
    decode_count=lambda body: msgspec.json.decode(body, type=CountAnswer).input_tokens,
)
