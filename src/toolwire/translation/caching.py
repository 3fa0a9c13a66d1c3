"""Prompt caching between protocols that cache differently.

Anthropic caches a prompt only up to the marks that a client sets. Most other providers cache every prompt, and OpenAI
and Mistral route requests with the same `prompt_cache_key` to the same cache. So a request that would be cached by the
client's own provider gets marks, or a key, if its client could not set them.
"""

import hashlib

from msgspec.structs import replace

from toolwire.canonical.content import Text
from toolwire.canonical.request import Request
from toolwire.codec.interface import Codec, Target

_SAMPLE = 1024


def with_caching(target: Target, request: Request, reader: Codec | None, writer: Codec) -> Target:
    """Return the target with what the encoder adds for its cache; unchanged if both protocols are the same.

    `reader` is the client's protocol, None for the runtime.
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
    """Derive a key for the cache from the first text of the user, which all requests of a conversation share.

    None without such a text. Providers combine the key with the beginning of the prompt, so that system text and tools
    need not be part of it: these may change within a conversation. Start, end and length of each text distinguish
    conversations well enough, at a cost that does not depend on the size.
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
