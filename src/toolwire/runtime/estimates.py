"""Estimates of token usage, so that a cap on tokens also holds for providers that report none."""

import msgspec

from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, Usage
from toolwire.codec.counting import estimate


def estimated_usage(request: Request, response: Response) -> Usage:
    """Tokens of one exchange: rather too many than too few."""
    said = [candidate.messages for candidate in response.candidates]
    return Usage(
        input_tokens=estimate(msgspec.json.encode(request)),
        output_tokens=estimate(msgspec.json.encode(said)),
        estimated=True,
    )
