"""Citations of an answer: those of the provider, and pages of toolwire's web tools that the answer names."""

from collections.abc import Iterator, Sequence

from toolwire.canonical.content import Citation, Message, Text
from toolwire.runtime.run.events import CallRecord


def find_citations(text: str, messages: Sequence[Message], calls: Sequence[CallRecord]) -> tuple[Citation, ...]:
    """Return the citations in an answer, with positions in its text, in the order of the text.

    `messages` is the conversation that ends with the answer. A provider that cites a complete block gives no positions;
    the citation then covers the block.
    """
    found = [*_provider_citations(text, messages), *_named_pages(text, calls)]
    unique = {(citation.url, citation.start, citation.end, citation.quote): citation for citation in found}
    return tuple(sorted(unique.values(), key=lambda citation: citation.start or 0))


def _provider_citations(text: str, messages: Sequence[Message]) -> Iterator[Citation]:
    """Yield the citations of the texts that make up the answer."""
    parts: list[Text] = []
    for message in reversed(messages):
        if message.role != "assistant":
            break
        parts[:0] = [part for part in message.parts if isinstance(part, Text)]
    offset = len(text) - sum(len(part.text) for part in parts)
    for part in parts:
        for citation in part.annotations or ():
            if citation.url is not None:
                start, end = citation.start or 0, len(part.text) if citation.end is None else citation.end
                yield Citation(
                    url=citation.url,
                    title=citation.title,
                    quote=citation.quote,
                    start=max(0, offset + start),
                    end=max(0, offset + end),
                )
        offset += len(part.text)


def _named_pages(text: str, calls: Sequence[CallRecord]) -> Iterator[Citation]:
    """Yield the pages that toolwire's own web tools returned and whose URL is in the answer."""
    for call in calls:
        for page in call.sources if call.locus != "provider" else ():
            if page.url and (start := text.find(page.url)) >= 0:
                yield Citation(url=page.url, title=page.title, start=start, end=start + len(page.url))
