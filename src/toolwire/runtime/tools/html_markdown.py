"""HTML as Markdown, in a process of its own.

A page that takes a parser too long, or breaks it, takes nothing else along.
`python -m toolwire.runtime.tools.html_markdown`
reads one from stdin and writes its title and its text as JSON.
"""

import asyncio
import os
import resource
import sys

import msgspec
from msgspec import Struct

from toolwire.runtime.tool import ToolError

TIMEOUT_SECONDS = 15
_MEMORY_LIMIT = 2 * 1024 * 1024 * 1024
_PASSED_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
"""To find the interpreter's own files: a page that takes the reader over finds no key."""
_DROPPED_TAGS = (
    *("script", "style", "noscript", "template", "iframe", "object", "embed", "svg", "canvas", "head"),
    *("form", "button", "input", "select", "textarea", "dialog"),
)


class MarkdownPage(Struct, frozen=True):
    text: str
    title: str = ""


async def convert_in_subprocess(html: str) -> MarkdownPage:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "toolwire.runtime.tools.html_markdown"),
        env={name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            said, _ = await process.communicate(html.encode("utf-8", "replace"))
    except TimeoutError as error:
        raise ToolError("the page can't be read: it takes too long", "page") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ToolError("the page can't be read: it breaks the reader", "page")
    return msgspec.json.decode(said, type=MarkdownPage)


def convert_html(html: str) -> MarkdownPage:
    from html_to_markdown import convert  # noqa: PLC0415 - only the process that reads needs them
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415

    tree = LexborHTMLParser(html)
    title = tree.css_first("title")
    told = " ".join(title.text().split()) if title is not None else ""
    tree.strip_tags(list(_DROPPED_TAGS))
    for hidden in tree.css("[hidden], [aria-hidden=true]"):
        hidden.decompose()
    return MarkdownPage(convert(tree.html or "").content or "", told)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (TIMEOUT_SECONDS, TIMEOUT_SECONDS))
    sys.stdout.buffer.write(msgspec.json.encode(convert_html(sys.stdin.buffer.read().decode("utf-8", "replace"))))
