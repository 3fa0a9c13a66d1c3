"""Making room in a long conversation: the oldest turns go, each with its reasoning, its calls and their results.

The first message stays, since it says what all of it is about, and so does everything since the last question. Nothing
is ever cut in two: a call without its result, or reasoning without what it led to, is refused by providers.

Estimates of token usage, so that a cap on tokens also holds for providers that report none.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Message, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Usage
from toolwire.codec.token_count import estimate_tokens, measure_json, tokens_for_size

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


class UsageEstimator:
    """Estimates the tokens of each turn of a run: rather too many than too few. Each message of a conversation that
    grows is measured once, and so are tools and settings that stay as they are."""

    def __init__(self) -> None:
        self._messages: tuple[Message, ...] = ()
        self._size = self._media = 0
        self._settings: Request | None = None
        self._settings_measure = (0, 0)

    def estimate(self, request: Request, response: Response) -> Usage:
        said = [candidate.messages for candidate in response.candidates]
        self._measure_messages(request.messages)
        settings = replace(request, messages=())
        if settings != self._settings:
            self._settings, self._settings_measure = settings, measure_json(msgspec.json.encode(settings))
        size, media = self._settings_measure
        return Usage(
            input_tokens=tokens_for_size(size + self._size, media + self._media, has_tools=bool(request.tools)),
            output_tokens=estimate_tokens(msgspec.json.encode(said)),
            estimated=True,
        )

    def _measure_messages(self, messages: tuple[Message, ...]) -> None:
        known = len(self._messages)
        if not known or messages[:known] != self._messages:
            known, self._size, self._media = 0, len("messages") if messages else 0, 0
        size, media = measure_json(msgspec.json.encode(messages[known:]))
        self._messages, self._size, self._media = messages, self._size + size, self._media + media
