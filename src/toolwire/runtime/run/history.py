"""Making room in a long conversation: the oldest turns go, each with its reasoning, its calls and their results.

The first message stays, since it says what all of it is about, and so does everything since the last question. Nothing
is ever cut in two: a call without its result, or reasoning without what it led to, is refused by providers.

Estimates of token usage, so that a cap on tokens also holds for providers that report none.
"""

from collections.abc import Sequence

import msgspec

from toolwire.canonical.content import Message, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Usage
from toolwire.codec.token_count import estimate_tokens

_CHARACTERS_PER_TOKEN = 4


def trim_history(messages: tuple[Message, ...], token_limit: int) -> tuple[tuple[Message, ...], int]:
    """The conversation in about so many tokens, and how many messages are missing from it."""
    rounds = _split_rounds(messages)
    sizes = [sum(_encoded_size(message) for message in one) for one in rounds]
    left, gone = sum(sizes), 0
    kept = [rounds[0]] if rounds else []
    for place in range(1, len(rounds)):
        if left > token_limit * _CHARACTERS_PER_TOKEN and place < len(rounds) - 1:
            left -= sizes[place]
            gone += len(rounds[place])
        else:
            kept += rounds[place:]
            break
    return tuple(message for one in kept for message in one), gone


def _split_rounds(messages: Sequence[Message]) -> list[list[Message]]:
    """What belongs together: what the model said, and the results that answer it."""
    rounds: list[list[Message]] = []
    answering = False
    for message in messages:
        if message.role == "assistant":
            if not answering:
                rounds.append([])
            rounds[-1].append(message)
            answering = True
        elif rounds and any(isinstance(part, ToolResult) for part in message.parts):
            rounds[-1].append(message)
            answering = False
        else:
            rounds.append([message])
            answering = False
    return rounds


def _encoded_size(message: Message) -> int:
    return len(msgspec.json.encode(message))


def estimate_usage(request: Request, response: Response) -> Usage:
    """Tokens of one exchange: rather too many than too few."""
    said = [candidate.messages for candidate in response.candidates]
    return Usage(
        input_tokens=estimate_tokens(msgspec.json.encode(request)),
        output_tokens=estimate_tokens(msgspec.json.encode(said)),
        estimated=True,
    )
