"""`/v1/responses/input_tokens`: the request without what only an answer needs."""

from typing import Literal

import msgspec
from msgspec import Struct

from toolwire.codec.counting import Counting, only

_COUNTED = frozenset(
    (
        *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning"),
        *("conversation", "previous_response_id", "truncation", "personality"),
    )
)


class CountAnswer(Struct):
    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


COUNTING = Counting(
    path=lambda path: f"{path}/input_tokens",
    wrap=lambda body, _: only(body, _COUNTED),
    unwrap=lambda body: body,
    encode_count=CountAnswer,
    decode_count=lambda body: msgspec.json.decode(body, type=CountAnswer).input_tokens,
)
