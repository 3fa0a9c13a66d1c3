"""Conversion of HTML to Markdown in a separate process, so that a page that hangs or crashes the parser does no harm.

`python -m toolwire.runtime.tools.html_markdown` reads a page from stdin and writes its title and text as JSON.
"""

import asyncio
import os
import resource
import sys

import msgspec
from msgspec import Struct

from toolwire.runtime.sandbox.process import start_subprocess
from toolwire.runtime.tool import ToolError

TIMEOUT_SECONDS = 15
_MEMORY_LIMIT = 2 * 1024 * 1024 * 1024
_PASSED_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
"""Only what the interpreter needs to start: a page that takes over the process finds no API key."""
_DROPPED_TAGS = (
    *("script", "style", "noscript", "template", "iframe", "object", "embed", "svg", "canvas", "head"),
    *("form", "button", "input", "select", "textarea", "dialog"),
)


class MarkdownPage(Struct, frozen=True):
    """A page as Markdown."""

    text: str
    title: str = ""


async def convert_in_subprocess(html: str) -> MarkdownPage:
    """Convert a page in a separate process with limited time and memory."""
    process = await start_subprocess(
        *(sys.executable, "-P", "-m", "toolwire.runtime.tools.html_markdown"),
        env={name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            output = await process.communicate(html.encode("utf-8", "replace"))
    except TimeoutError as error:
        raise ToolError("the page can't be converted: timed out", "page") from error
    finally:
        process.close()
    if process.returncode:
        raise ToolError("the page can't be converted: the converter crashed", "page")
    return msgspec.json.decode(output, type=MarkdownPage)


def convert_html(html: str) -> MarkdownPage:
    """Convert a page, without scripts, forms and hidden elements."""
    from html_to_markdown import convert  # noqa: PLC0415 - needed only in the subprocess
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415

    tree = LexborHTMLParser(html)
    title_element = tree.css_first("title")
    title = " ".join(title_element.text().split()) if title_element is not None else ""
    tree.strip_tags(list(_DROPPED_TAGS))
    for element in tree.css("[hidden], [aria-hidden=true]"):
        element.decompose()
    return MarkdownPage(convert(tree.html or "").content or "", title)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (TIMEOUT_SECONDS, TIMEOUT_SECONDS))
    sys.stdout.buffer.write(msgspec.json.encode(convert_html(sys.stdin.buffer.read().decode("utf-8", "replace"))))
