"""One page in view, looked at from a world of its own that the page's scripts can't reach or change."""

import asyncio
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, ParamSpec, TypeVar

import msgspec
from playwright.async_api import CDPSession, Error, Frame, Page

from .guard import Facts
from .settings import BrowserSettings

LOOK = (files(__package__) / "look.js").read_text("utf-8")
READ = (files(__package__) / "read.js").read_text("utf-8")
LOOK_AT = (
    "function (leftOut, x, y) { const node = document.elementFromPoint(x, y); "
    f"return node && ({LOOK}).call(node, leftOut) }}"
)
LOOK_AT_FOCUS = (
    f"function (leftOut) {{ const node = document.activeElement; return node && ({LOOK}).call(node, leftOut) }}"
)
# An open list is a window of its own: it is in pictures, but the mouse goes to the page below it.
KEEP_CLOSED = """function () {
  const list = this.closest("select");
  list.addEventListener("mousedown", (event) => event.preventDefault(), {once: true});
  list.focus();
}"""
WORLD = "toolwire"
TWO_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
DEEPEST = 12

P = ParamSpec("P")
T = TypeVar("T")


class View:
    """`left_out` selects what is redacted: no text says what it is."""

    def __init__(self, page: Page, cdp: CDPSession, left_out: str) -> None:
        self.page = page
        self.cdp = cdp
        self._left_out = left_out
        self._worlds: dict[tuple[CDPSession, str], int] = {}
        self._processes: dict[Frame, tuple[CDPSession, str]] = {}
        self._root: str | None = None

    @classmethod
    async def of(cls, page: Page, settings: BrowserSettings) -> "View":
        cdp = await page.context.new_cdp_session(page)
        await cdp.send("DOM.enable")
        # A picture taken by a session leaves the page with that session's metrics: without these, with none.
        size = settings.page
        metrics = {"width": size.width, "height": size.height, "screenWidth": size.width, "screenHeight": size.height}
        await cdp.send(
            "Emulation.setDeviceMetricsOverride",
            {**metrics, "deviceScaleFactor": settings.device_scale, "mobile": False},
        )
        return cls(page, cdp, ", ".join(settings.redaction.selectors))

    async def look_at(self, x: float, y: float) -> Facts | None:
        """What a click there would hit, in whichever frame it is."""
        return await self._twice(self._look_at, x, y)

    async def look_at_focus(self) -> Facts | None:
        """What a key would go to."""
        return await self._twice(self._look_at_focus)

    async def keep_closed(self, x: float, y: float) -> None:
        """The next press on a list of choices gives it the focus and does not open it."""
        found = await self._look_into(x, y)
        if found is not None:
            await self._call(found[1], found[2], KEEP_CLOSED)

    async def painted(self) -> None:
        """Until what was done can be seen."""
        await self._twice(self._painted)

    async def text(self, longest: int) -> str:
        return await self._twice(self._text, longest)

    async def _twice(self, looking: Callable[P, Awaitable[T]], *arguments: P.args, **named: P.kwargs) -> T:
        """A page that is being replaced takes its worlds with it; the next one has others."""
        try:
            return await looking(*arguments, **named)
        except Error:
            self._worlds.clear()
            self._processes.clear()
            self._root = None
            await asyncio.sleep(0.05)
            return await looking(*arguments, **named)

    async def _look_at(self, x: float, y: float) -> Facts | None:
        facts = await self._glance(LOOK_AT, x, y)
        if facts is not None:
            return facts
        found = await self._look_into(x, y)
        return None if found is None else found[0]

    async def _glance(self, function: str, *arguments: float) -> Facts | None:
        """At once, where no frame and no closed root is in the way; else nothing."""
        call = {
            "functionDeclaration": function,
            "executionContextId": await self._world(self.cdp, await self.root_frame()),
            "arguments": [{"value": argument} for argument in (self._left_out, *arguments)],
            "returnByValue": True,
        }
        facts = msgspec.convert(_value(await self.cdp.send("Runtime.callFunctionOn", call)), Facts | None)
        return None if facts is None or facts.frame or facts.shadowed else facts

    async def _look_into(self, x: float, y: float) -> tuple[Facts, CDPSession, str] | None:
        cdp = self.cdp
        for _ in range(DEEPEST):
            try:
                found = await cdp.send("DOM.getNodeForLocation", {"x": round(x), "y": round(y)})
            except Error as error:
                if "No node found" in str(error):
                    return None
                raise
            node = found["backendNodeId"]
            resolved = await self._resolve(cdp, node, found["frameId"])
            facts = await self._facts(cdp, resolved)
            if facts is None:
                return None
            inner = await self._process_of(cdp, node) if facts.frame else None
            if inner is None:
                return facts, cdp, resolved
            corner = (await cdp.send("DOM.getBoxModel", {"backendNodeId": node}))["model"]["content"]
            x, y, cdp = x - corner[0], y - corner[1], inner[0]
        return None

    async def _look_at_focus(self) -> Facts | None:
        return await self._glance(LOOK_AT_FOCUS) or await self._look_into_focus()

    async def _look_into_focus(self) -> Facts | None:
        cdp, frame = self.cdp, await self.root_frame()
        document = {"expression": "document", "contextId": await self._world(cdp, frame)}
        root = (await cdp.send("Runtime.evaluate", document))["result"]["objectId"]
        for _ in range(DEEPEST):
            found = await self._call(
                cdp, root, "function () { return this.activeElement ?? this.body }", by_value=False
            )
            if "objectId" not in found:
                return None
            facts = await self._facts(cdp, found["objectId"])
            if facts is None or not (facts.frame or facts.shadowed):
                return facts
            described = {"objectId": found["objectId"], "depth": 1, "pierce": True}
            node = (await cdp.send("DOM.describeNode", described))["node"]
            below = node.get("contentDocument") or next(iter(node.get("shadowRoots", ())), None)
            if below is not None and below.get("shadowRootType") != "user-agent":
                frame = node.get("frameId", frame)
                root = await self._resolve(cdp, below["backendNodeId"], frame)
                continue
            inner = await self._process(node["frameId"]) if facts.frame and "frameId" in node else None
            if inner is None:
                return facts
            cdp, frame = inner
            document = {"expression": "document", "contextId": await self._world(cdp, frame)}
            root = (await cdp.send("Runtime.evaluate", document))["result"]["objectId"]
        return None

    async def _painted(self) -> None:
        world = await self._world(self.cdp, await self.root_frame())
        await self.cdp.send("Runtime.evaluate", {"expression": TWO_FRAMES, "awaitPromise": True, "contextId": world})

    async def _text(self, longest: int) -> str:
        texts: list[str] = []
        places = [(self.cdp, frame) for frame in await self._frames(self.cdp)]
        for inner, _ in await self._all_processes():
            places.extend((inner, frame) for frame in await self._frames(inner))
        for cdp, frame in places:
            if (left := longest - sum(map(len, texts))) <= 0:
                break
            call = {
                "functionDeclaration": READ,
                "executionContextId": await self._world(cdp, frame),
                "arguments": [{"value": self._left_out}, {"value": left}],
                "returnByValue": True,
            }
            text = _value(await cdp.send("Runtime.callFunctionOn", call))
            if text:
                texts.append(text)
        return "\n".join(texts)[:longest]

    async def _frames(self, cdp: CDPSession) -> list[str]:
        found: list[str] = []

        def collect(tree: dict[str, Any]) -> None:
            found.append(tree["frame"]["id"])
            for child in tree.get("childFrames", ()):
                collect(child)

        collect((await cdp.send("Page.getFrameTree"))["frameTree"])
        return found

    async def _resolve(self, cdp: CDPSession, node: int, frame: str) -> str:
        asked = {"backendNodeId": node, "executionContextId": await self._world(cdp, frame)}
        resolved: str = (await cdp.send("DOM.resolveNode", asked))["object"]["objectId"]
        return resolved

    async def _facts(self, cdp: CDPSession, resolved: str) -> Facts | None:
        return msgspec.convert(await self._call(cdp, resolved, LOOK, self._left_out), Facts | None)

    async def _call(self, cdp: CDPSession, this: str, function: str, *arguments: str, by_value: bool = True) -> Any:
        given = [{"value": argument} for argument in arguments]
        asked = {"functionDeclaration": function, "objectId": this, "arguments": given, "returnByValue": by_value}
        answer = await cdp.send("Runtime.callFunctionOn", asked)
        return _value(answer) if by_value else answer["result"]

    async def _world(self, cdp: CDPSession, frame: str) -> int:
        known = self._worlds.get((cdp, frame))
        if known is None:
            made = await cdp.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": WORLD})
            known = self._worlds[cdp, frame] = made["executionContextId"]
        return known

    async def root_frame(self) -> str:
        if self._root is None:
            self._root = (await self.cdp.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        return self._root

    async def _process_of(self, cdp: CDPSession, node: int) -> tuple[CDPSession, str] | None:
        described = (await cdp.send("DOM.describeNode", {"backendNodeId": node}))["node"]
        return await self._process(described["frameId"]) if "frameId" in described else None

    async def _process(self, frame: str) -> tuple[CDPSession, str] | None:
        """The way to a frame of another site, which lives in a process of its own."""
        return next((found for found in await self._all_processes() if found[1] == frame), None)

    async def _all_processes(self) -> list[tuple[CDPSession, str]]:
        for frame in self.page.frames[1:]:
            if frame not in self._processes:
                try:
                    cdp = await self.page.context.new_cdp_session(frame)
                except Error:
                    continue  # it shares its parent's
                await cdp.send("DOM.enable")
                self._processes[frame] = cdp, (await self._frames(cdp))[0]
        return [self._processes[frame] for frame in self.page.frames if frame in self._processes]


def _value(answer: dict[str, Any]) -> Any:
    if "exceptionDetails" in answer:
        raise Error(str(answer["exceptionDetails"].get("text", "the page could not be looked at")))
    return answer["result"].get("value")
