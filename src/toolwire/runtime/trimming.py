"""Making room in a long conversation: the oldest turns go, each with its reasoning, its calls and their results.

The first message stays, since it says what all of it is about, and so does everything since the last question. Nothing
is ever cut in two: a call without its result, or reasoning without what it led to, is refused by providers.
"""

from collections.abc import Sequence

import msgspec

from toolwire.canonical.content import Message, ToolResult

_CHARACTERS_OF_A_TOKEN = 4


def trimmed(messages: tuple[Message, ...], tokens: int) -> tuple[tuple[Message, ...], int]:
    """The conversation in about so many tokens, and how many messages are missing from it."""
    rounds = _rounds(messages)
    sizes = [sum(_size(message) for message in one) for one in rounds]
    left, gone = sum(sizes), 0
    kept = [rounds[0]] if rounds else []
    for place in range(1, len(rounds)):
        if left > tokens * _CHARACTERS_OF_A_TOKEN and place < len(rounds) - 1:
            left -= sizes[place]
            gone += len(rounds[place])
        else:
            kept += rounds[place:]
            break
    return tuple(message for one in kept for message in one), gone


def _rounds(messages: Sequence[Message]) -> list[list[Message]]:
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


def _size(message: Message) -> int:
    return len(msgspec.json.encode(message))
