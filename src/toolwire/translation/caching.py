"""Prompt caching between protocols that cache differently.

Anthropic caches a prompt only up to the marks that a client sets. Most other providers cache every prompt, and OpenAI
and Mistral route requests with the same `prompt_cache_key` to the same cache. A request gets the marks or the key that
its client's protocol can't express, so that it is cached as it would be by the client's own provider.
"""

import hashlib

from msgspec.structs import replace

from toolwire.canonical.content import Text
from toolwire.canonical.request import Request
from toolwire.codec.interface import Codec, Target

_SAMPLE = 1024  # characters


def with_caching(target: Target, request: Request, reader: Codec | None, writer: Codec) -> Target:
    """Return the target with the cache marks and key that the encoder is to add; unchanged within one protocol.

    `reader` is the codec of the client, None for the agents of toolwire's own runtime. `writer` is the provider's.
    """
    if reader is writer:
        return target
    lacks_key = writer.has_cache_key and (reader is None or not reader.has_cache_key) and target.host.fields.cache_key
    return replace(
        target,
        adds_cache_marks=reader is None or not reader.caches_by_marks,
        cache_key=derive_cache_key(request) if lacks_key else None,
    )


def derive_cache_key(request: Request) -> str | None:
    """Derive a key for the cache from the first user message, which all requests of a conversation share.

    None if that message has no text. Providers combine the key with the beginning of the prompt. So system text and
    tools, which may change within a conversation, need not be part of the key. Length, start and end of each text
    distinguish conversations well enough, at a cost that does not depend on the length.
    """
    for message in request.messages:
        if message.role != "user":
            continue
        digest = hashlib.blake2b(digest_size=16)
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        for text in texts:
            sample = f"{len(text)}\0{text[:_SAMPLE]}\0{text[-_SAMPLE:]}\0"
            digest.update(sample.encode(errors="surrogatepass"))
        return f"tw-{digest.hexdigest()}" if texts else None
    return None
