"""Trim long conversations, and estimate token usage where the provider reports none.

The oldest turns are removed first. The first message stays because it states the task, and so does the current round.
A turn is removed with its reasoning, calls and results, because providers reject calls without results.
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
    """Trim a conversation to about `token_limit` tokens; returns it with the number of messages removed."""
    rounds = _split_rounds(messages)
    sizes = [sum(_encoded_size(message) for message in messages_of_round) for messages_of_round in rounds]
    total_size, removed_count = sum(sizes), 0
    retained = [rounds[0]] if rounds else []
    for index in range(1, len(rounds)):
        if total_size > token_limit * _CHARACTERS_PER_TOKEN and index < len(rounds) - 1:
            total_size -= sizes[index]
            removed_count += len(rounds[index])
        else:
            retained += rounds[index:]
            break
    return tuple(message for messages_of_round in retained for message in messages_of_round), removed_count


def _split_rounds(messages: Sequence[Message]) -> list[list[Message]]:
    """Group each assistant turn with the results of its calls; every other message is a group of its own."""
    rounds: list[list[Message]] = []
    in_assistant_turn = False
    for message in messages:
        if message.role == "assistant":
            if not in_assistant_turn:
                rounds.append([])
            rounds[-1].append(message)
            in_assistant_turn = True
        elif rounds and any(isinstance(part, ToolResult) for part in message.parts):
            rounds[-1].append(message)
            in_assistant_turn = False
        else:
            rounds.append([message])
            in_assistant_turn = False
    return rounds


def _encoded_size(message: Message) -> int:
    """Return the length of a message as JSON, in bytes."""
    return len(msgspec.json.encode(message))


class UsageEstimator:
    """Estimates the token usage of each turn of a run, rounding up.

    Each message of a growing conversation is measured once. So are tools and settings while they do not change.
    """

    def __init__(self) -> None:
        self._messages: tuple[Message, ...] = ()
        self._size = self._media = 0
        self._settings: Request | None = None
        self._settings_measure = (0, 0)

    def estimate(self, request: Request, response: Response) -> Usage:
        """Estimate the usage of one request and its response."""
        messages = [candidate.messages for candidate in response.candidates]
        self._measure_messages(request.messages)
        settings = replace(request, messages=())
        if settings != self._settings:
            self._settings, self._settings_measure = settings, measure_json(msgspec.json.encode(settings))
        size, media = self._settings_measure
        return Usage(
            input_tokens=tokens_for_size(size + self._size, media + self._media, has_tools=bool(request.tools)),
            output_tokens=estimate_tokens(msgspec.json.encode(messages)),
            estimated=True,
        )

    def _measure_messages(self, messages: tuple[Message, ...]) -> None:
        """Update the totals of text size and media count by the messages that are new since the last turn.

        If the messages do not continue the last conversation, the totals start again from zero.
        """
        known = len(self._messages)
        if not known or messages[:known] != self._messages:
            known, self._size, self._media = 0, len("messages") if messages else 0, 0
        size, media = measure_json(msgspec.json.encode(messages[known:]))
        self._messages, self._size, self._media = messages, self._size + size, self._media + media
