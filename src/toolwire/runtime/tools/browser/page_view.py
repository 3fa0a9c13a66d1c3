"""One page in view, looked at from a world of its own that the page's scripts can't reach or change.

Pictures of a page: always of the declared size, and black where they must be.
"""

import asyncio
import base64
import struct
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, ParamSpec, TypeVar

import msgspec
from playwright.async_api import CDPSession, Error, Frame, Page

from toolwire.runtime.tools.browser.display import Box, Display, ScreenImage
from toolwire.runtime.tools.browser.guard import ElementFacts
from toolwire.runtime.tools.browser.settings import BrowserSettings

INSPECT_ELEMENT = (files(__package__) / "look.js").read_text("utf-8")
READ_TEXT = (files(__package__) / "read.js").read_text("utf-8")
INSPECT_POINT = (
    "function (leftOut, x, y) { const node = document.elementFromPoint(x, y); "
    f"return node && ({INSPECT_ELEMENT}).call(node, leftOut) }}"
)
INSPECT_FOCUS = (
    "function (leftOut) { const node = document.activeElement;"
    f" return node && ({INSPECT_ELEMENT}).call(node, leftOut) }}"
)
# An open list is a window of its own: it is in pictures, but the mouse goes to the page below it.
SUPPRESS_DROPDOWN = """function () {
  const list = this.closest("select");
  list.addEventListener("mousedown", (event) => event.preventDefault(), {once: true});
  list.focus();
}"""
WORLD_NAME = "toolwire"
WAIT_FOR_PAINT = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
MAX_FRAME_DEPTH = 12

P = ParamSpec("P")
T = TypeVar("T")


class PageView:
    """`left_out` selects what is redacted: no text says what it is."""

    def __init__(self, page: Page, cdp: CDPSession, redacted_selector: str) -> None:
        self.page = page
        self.cdp = cdp
        self._redacted_selector = redacted_selector
        self._worlds: dict[tuple[CDPSession, str], int] = {}
        self._frame_sessions: dict[Frame, tuple[CDPSession, str]] = {}
        self._root_frame_id: str | None = None

    @classmethod
    async def open(cls, page: Page, settings: BrowserSettings) -> "PageView":
        cdp = await page.context.new_cdp_session(page)
        await cdp.send("DOM.enable")
        # A picture taken by a session leaves the page with that session's metrics: without these, with none.
        size = settings.page_size
        metrics = {"width": size.width, "height": size.height, "screenWidth": size.width, "screenHeight": size.height}
        await cdp.send(
            "Emulation.setDeviceMetricsOverride",
            {**metrics, "deviceScaleFactor": settings.device_scale, "mobile": False},
        )
        return cls(page, cdp, ", ".join(settings.redaction.selectors))

    async def inspect_point(self, x: float, y: float) -> ElementFacts | None:
        """What a click there would hit, in whichever frame it is."""
        return await self._retry_once(self._inspect_point, x, y)

    async def inspect_focus(self) -> ElementFacts | None:
        """What a key would go to."""
        return await self._retry_once(self._inspect_focus)

    async def suppress_dropdown(self, x: float, y: float) -> None:
        """The next press on a list of choices gives it the focus and does not open it."""
        found = await self._inspect_point_in_frames(x, y)
        if found is not None:
            await self._call_function(found[1], found[2], SUPPRESS_DROPDOWN)

    async def wait_for_paint(self) -> None:
        """Until what was done can be seen."""
        await self._retry_once(self._wait_for_paint)

    async def read_text(self, max_characters: int) -> str:
        return await self._retry_once(self._read_text, max_characters)

    async def _retry_once(self, operation: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """A page that is being replaced takes its worlds with it; the next one has others."""
        try:
            return await operation(*args, **kwargs)
        except Error:
            self._worlds.clear()
            self._frame_sessions.clear()
            self._root_frame_id = None
            await asyncio.sleep(0.05)
            return await operation(*args, **kwargs)

    async def _inspect_point(self, x: float, y: float) -> ElementFacts | None:
        facts = await self._inspect_top_frame(INSPECT_POINT, x, y)
        if facts is not None:
            return facts
        found = await self._inspect_point_in_frames(x, y)
        return None if found is None else found[0]

    async def _inspect_top_frame(self, function: str, *arguments: float) -> ElementFacts | None:
        """At once, where no frame and no closed root is in the way; else nothing."""
        call = {
            "functionDeclaration": function,
            "executionContextId": await self._world_id(self.cdp, await self.root_frame()),
            "arguments": [{"value": argument} for argument in (self._redacted_selector, *arguments)],
            "returnByValue": True,
        }
        facts = msgspec.convert(_result_value(await self.cdp.send("Runtime.callFunctionOn", call)), ElementFacts | None)
        return None if facts is None or facts.frame or facts.shadowed else facts

    async def _inspect_point_in_frames(self, x: float, y: float) -> tuple[ElementFacts, CDPSession, str] | None:
        cdp = self.cdp
        for _ in range(MAX_FRAME_DEPTH):
            try:
                found = await cdp.send("DOM.getNodeForLocation", {"x": round(x), "y": round(y)})
            except Error as error:
                if "No node found" in str(error):
                    return None
                raise
            node = found["backendNodeId"]
            resolved = await self._resolve_node(cdp, node, found["frameId"])
            facts = await self._element_facts(cdp, resolved)
            if facts is None:
                return None
            inner = await self._session_of_node(cdp, node) if facts.frame else None
            if inner is None:
                return facts, cdp, resolved
            corner = (await cdp.send("DOM.getBoxModel", {"backendNodeId": node}))["model"]["content"]
            x, y, cdp = x - corner[0], y - corner[1], inner[0]
        return None

    async def _inspect_focus(self) -> ElementFacts | None:
        return await self._inspect_top_frame(INSPECT_FOCUS) or await self._inspect_focus_in_frames()

    async def _inspect_focus_in_frames(self) -> ElementFacts | None:
        cdp, frame = self.cdp, await self.root_frame()
        document = {"expression": "document", "contextId": await self._world_id(cdp, frame)}
        root = (await cdp.send("Runtime.evaluate", document))["result"]["objectId"]
        for _ in range(MAX_FRAME_DEPTH):
            found = await self._call_function(
                cdp, root, "function () { return this.activeElement ?? this.body }", by_value=False
            )
            if "objectId" not in found:
                return None
            facts = await self._element_facts(cdp, found["objectId"])
            if facts is None or not (facts.frame or facts.shadowed):
                return facts
            described = {"objectId": found["objectId"], "depth": 1, "pierce": True}
            node = (await cdp.send("DOM.describeNode", described))["node"]
            below = node.get("contentDocument") or next(iter(node.get("shadowRoots", ())), None)
            if below is not None and below.get("shadowRootType") != "user-agent":
                frame = node.get("frameId", frame)
                root = await self._resolve_node(cdp, below["backendNodeId"], frame)
                continue
            inner = await self._session_of_frame(node["frameId"]) if facts.frame and "frameId" in node else None
            if inner is None:
                return facts
            cdp, frame = inner
            document = {"expression": "document", "contextId": await self._world_id(cdp, frame)}
            root = (await cdp.send("Runtime.evaluate", document))["result"]["objectId"]
        return None

    async def _wait_for_paint(self) -> None:
        world = await self._world_id(self.cdp, await self.root_frame())
        await self.cdp.send(
            "Runtime.evaluate", {"expression": WAIT_FOR_PAINT, "awaitPromise": True, "contextId": world}
        )

    async def _read_text(self, max_characters: int) -> str:
        texts: list[str] = []
        places = [(self.cdp, frame) for frame in await self._frame_ids(self.cdp)]
        for inner, _ in await self._all_frame_sessions():
            places.extend((inner, frame) for frame in await self._frame_ids(inner))
        for cdp, frame in places:
            if (left := max_characters - sum(map(len, texts))) <= 0:
                break
            call = {
                "functionDeclaration": READ_TEXT,
                "executionContextId": await self._world_id(cdp, frame),
                "arguments": [{"value": self._redacted_selector}, {"value": left}],
                "returnByValue": True,
            }
            text = _result_value(await cdp.send("Runtime.callFunctionOn", call))
            if text:
                texts.append(text)
        return "\n".join(texts)[:max_characters]

    async def _frame_ids(self, cdp: CDPSession) -> list[str]:
        found: list[str] = []

        def collect(tree: dict[str, Any]) -> None:
            found.append(tree["frame"]["id"])
            for child in tree.get("childFrames", ()):
                collect(child)

        collect((await cdp.send("Page.getFrameTree"))["frameTree"])
        return found

    async def _resolve_node(self, cdp: CDPSession, node: int, frame: str) -> str:
        asked = {"backendNodeId": node, "executionContextId": await self._world_id(cdp, frame)}
        resolved: str = (await cdp.send("DOM.resolveNode", asked))["object"]["objectId"]
        return resolved

    async def _element_facts(self, cdp: CDPSession, object_id: str) -> ElementFacts | None:
        return msgspec.convert(
            await self._call_function(cdp, object_id, INSPECT_ELEMENT, self._redacted_selector), ElementFacts | None
        )

    async def _call_function(
        self, cdp: CDPSession, object_id: str, function: str, *arguments: str, by_value: bool = True
    ) -> Any:
        given = [{"value": argument} for argument in arguments]
        asked = {"functionDeclaration": function, "objectId": object_id, "arguments": given, "returnByValue": by_value}
        answer = await cdp.send("Runtime.callFunctionOn", asked)
        return _result_value(answer) if by_value else answer["result"]

    async def _world_id(self, cdp: CDPSession, frame: str) -> int:
        known = self._worlds.get((cdp, frame))
        if known is None:
            made = await cdp.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": WORLD_NAME})
            known = self._worlds[cdp, frame] = made["executionContextId"]
        return known

    async def root_frame(self) -> str:
        if self._root_frame_id is None:
            self._root_frame_id = (await self.cdp.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        return self._root_frame_id

    async def _session_of_node(self, cdp: CDPSession, node: int) -> tuple[CDPSession, str] | None:
        described = (await cdp.send("DOM.describeNode", {"backendNodeId": node}))["node"]
        return await self._session_of_frame(described["frameId"]) if "frameId" in described else None

    async def _session_of_frame(self, frame: str) -> tuple[CDPSession, str] | None:
        """The way to a frame of another site, which lives in a process of its own."""
        return next((found for found in await self._all_frame_sessions() if found[1] == frame), None)

    async def _all_frame_sessions(self) -> list[tuple[CDPSession, str]]:
        for frame in self.page.frames[1:]:
            if frame not in self._frame_sessions:
                try:
                    cdp = await self.page.context.new_cdp_session(frame)
                except Error:
                    continue  # it shares its parent's
                await cdp.send("DOM.enable")
                self._frame_sessions[frame] = cdp, (await self._frame_ids(cdp))[0]
        return [self._frame_sessions[frame] for frame in self.page.frames if frame in self._frame_sessions]


def _result_value(answer: dict[str, Any]) -> Any:
    if "exceptionDetails" in answer:
        raise Error(str(answer["exceptionDetails"].get("text", "the page could not be looked at")))
    return answer["result"].get("value")


# In a page of our own, which never loaded anything: no script of the page in view sees the picture or the boxes.
PAINT_BLACK = """async ([data, boxes]) => {
  const picture = new Image();
  picture.src = "data:image/png;base64," + data;
  await picture.decode();
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  const pen = canvas.getContext("2d");
  pen.drawImage(picture, 0, 0);
  for (const [x, y, width, height] of boxes) pen.fillRect(x, y, width, height);
  const bytes = new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
}"""


class ImageSizeError(Exception):
    pass


class ScreenCapture:
    def __init__(self, display: Display, settings: BrowserSettings, redaction_page: Page | None) -> None:
        self.display = display
        self.redaction = settings.redaction
        self.device_scale = settings.device_scale
        self.redaction_page = redaction_page

    async def capture(self, view: PageView) -> ScreenImage:
        taken = await self._capture(view, Box(0, 0, *self.display.page_size), self.display.scale)
        if (taken.width, taken.height) != self.display.size:
            raise ImageSizeError(f"the picture is {taken.width}x{taken.height}, but the display is {self.display.size}")
        return taken

    async def capture_box(self, view: PageView, box: Box) -> ScreenImage:
        """Drawn anew at its size, so that it shows more than the whole picture does."""
        return await self._capture(view, box, self.display.magnification(box))

    async def _capture(self, view: PageView, box: Box, scale: float) -> ScreenImage:
        hidden = await self._redacted_boxes(view)
        # A clip counts from where the document begins, which is above the view once it is scrolled.
        shown = (await view.cdp.send("Page.getLayoutMetrics"))["cssVisualViewport"]
        x, y = box.x + shown["pageX"], box.y + shown["pageY"]
        clip = {"x": x, "y": y, "width": box.width, "height": box.height}
        asked: dict[str, Any] = {
            "format": "png",
            "clip": {**clip, "scale": scale / self.device_scale},
        }
        data: str = (await view.cdp.send("Page.captureScreenshot", asked))["data"]
        if self.redaction_page is not None:
            # What moved meanwhile is black at both of its places.
            hidden += await self._redacted_boxes(view)
            boxes = [_to_image_pixels(box, scale, one) for one in hidden]
            data = await self.redaction_page.evaluate(PAINT_BLACK, [data, boxes])
        width, height = struct.unpack(">II", base64.b64decode(data[:32])[16:24])
        return ScreenImage(data=data, width=width, height=height)

    async def _redacted_boxes(self, view: PageView) -> list[Box]:
        if self.redaction_page is None:
            return []
        boxes = [Box(*area) for area in self.redaction.areas]
        for selector in self.redaction.selectors:
            for frame in view.page.frames:
                elements = await frame.query_selector_all(selector)
                boxes += [Box(**found) for one in elements if (found := await one.bounding_box()) is not None]
        return boxes


def _to_image_pixels(clip: Box, scale: float, box: Box) -> tuple[float, float, float, float]:
    """In pixels of the picture, one wider on every side than what rounding could leave bare."""
    x, y = (box.x - clip.x) * scale - 1, (box.y - clip.y) * scale - 1
    return x, y, box.width * scale + 2, box.height * scale + 2
