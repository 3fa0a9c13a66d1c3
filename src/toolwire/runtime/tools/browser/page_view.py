"""One page in view: element inspection, text and screenshots.

Inspection runs in an isolated world, which the scripts of the page can't reach or change. Screenshots always have
the declared size, and redacted areas are black.
"""

import asyncio
import base64
import struct
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, ParamSpec, TypeVar

import msgspec
from playwright.async_api import CDPSession, Error, Frame, Page

from toolwire.runtime.tools.browser.display import Box, BrowserSettings, Display, ScreenImage
from toolwire.runtime.tools.browser.guard import ElementFacts

INSPECT_ELEMENT = (files(__package__) / "look.js").read_text("utf-8")
READ_TEXT = (files(__package__) / "read.js").read_text("utf-8")
INSPECT_POINT = (
    "function (redactedSelector, x, y) { const node = document.elementFromPoint(x, y); "
    f"return node && ({INSPECT_ELEMENT}).call(node, redactedSelector) }}"
)
INSPECT_FOCUS = (
    "function (redactedSelector) { const node = document.activeElement;"
    f" return node && ({INSPECT_ELEMENT}).call(node, redactedSelector) }}"
)
# An open drop-down list is a separate window: screenshots show it, but the mouse acts on the page below it.
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
    """A page and its DevTools session. `redacted_selector` selects the elements whose texts are never returned."""

    def __init__(self, page: Page, cdp: CDPSession, redacted_selector: str) -> None:
        self.page = page
        self.cdp = cdp
        self._redacted_selector = redacted_selector
        self._worlds: dict[tuple[CDPSession, str], int] = {}
        self._frame_sessions: dict[Frame, tuple[CDPSession, str]] = {}
        self._root_frame_id: str | None = None

    @classmethod
    async def open(cls, page: Page, settings: BrowserSettings) -> "PageView":
        """Attach to a page and set its size."""
        cdp = await page.context.new_cdp_session(page)
        await cdp.send("DOM.enable")
        # After a screenshot the page keeps the metrics of the session that took it, so they are set here too.
        size = settings.page_size
        metrics = {"width": size.width, "height": size.height, "screenWidth": size.width, "screenHeight": size.height}
        await cdp.send(
            "Emulation.setDeviceMetricsOverride",
            {**metrics, "deviceScaleFactor": settings.device_scale, "mobile": False},
        )
        return cls(page, cdp, ", ".join(settings.redaction.selectors))

    async def inspect_point(self, x: float, y: float) -> ElementFacts | None:
        """Return the facts of the element that a click at a point would hit, in any frame; None if there is none."""
        return await self._retry_once(self._inspect_point, x, y)

    async def inspect_focus(self) -> ElementFacts | None:
        """Return the facts of the element that has the keyboard focus, in any frame; None if there is none."""
        return await self._retry_once(self._inspect_focus)

    async def suppress_dropdown(self, x: float, y: float) -> None:
        """Make the next press on a drop-down list focus it without opening it."""
        hit = await self._inspect_point_in_frames(x, y)
        if hit is not None:
            await self._call_function(hit[1], hit[2], SUPPRESS_DROPDOWN)

    async def wait_for_paint(self) -> None:
        """Wait until the page has painted its current state."""
        await self._retry_once(self._wait_for_paint)

    async def read_text(self, max_characters: int) -> str:
        """Return the visible text of the page and its frames."""
        return await self._retry_once(self._read_text, max_characters)

    async def _retry_once(self, operation: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation, and retry it once if it fails.

        A navigation invalidates the isolated worlds (script contexts that the page can't see) of the frames.
        """
        try:
            return await operation(*args, **kwargs)
        except Error:
            self._worlds.clear()
            self._frame_sessions.clear()
            self._root_frame_id = None
            await asyncio.sleep(0.05)
            return await operation(*args, **kwargs)

    async def _inspect_point(self, x: float, y: float) -> ElementFacts | None:
        """Inspect the element at a point, first in the top frame alone, which is faster."""
        facts = await self._inspect_top_frame(INSPECT_POINT, x, y)
        if facts is not None:
            return facts
        hit = await self._inspect_point_in_frames(x, y)
        return None if hit is None else hit[0]

    async def _inspect_top_frame(self, function: str, *arguments: float) -> ElementFacts | None:
        """Inspect an element with one call of a JavaScript function in the top frame.

        Returns None if the element is itself a frame or may have a closed shadow root.
        """
        call = {
            "functionDeclaration": function,
            "executionContextId": await self._world_id(self.cdp, await self.root_frame_id()),
            "arguments": [{"value": argument} for argument in (self._redacted_selector, *arguments)],
            "returnByValue": True,
        }
        facts = msgspec.convert(_result_value(await self.cdp.send("Runtime.callFunctionOn", call)), ElementFacts | None)
        return None if facts is None or facts.frame or facts.shadowed else facts

    async def _inspect_point_in_frames(self, x: float, y: float) -> tuple[ElementFacts, CDPSession, str] | None:
        """Find the element at a point through frames and shadow roots.

        Returns its facts, the DevTools session of its frame, and its remote object id; None if there is no element.
        """
        cdp = self.cdp
        for _ in range(MAX_FRAME_DEPTH):
            try:
                location = await cdp.send("DOM.getNodeForLocation", {"x": round(x), "y": round(y)})
            except Error as error:
                if "No node found" in str(error):
                    return None
                raise
            node = location["backendNodeId"]
            object_id = await self._resolve_node(cdp, node, location["frameId"])
            facts = await self._element_facts(cdp, object_id)
            if facts is None:
                return None
            frame_session = await self._session_of_node(cdp, node) if facts.frame else None
            if frame_session is None:
                return facts, cdp, object_id
            corner = (await cdp.send("DOM.getBoxModel", {"backendNodeId": node}))["model"]["content"]
            x, y, cdp = x - corner[0], y - corner[1], frame_session[0]
        return None

    async def _inspect_focus(self) -> ElementFacts | None:
        """Inspect the focused element, first in the top frame alone, which is faster."""
        return await self._inspect_top_frame(INSPECT_FOCUS) or await self._inspect_focus_in_frames()

    async def _inspect_focus_in_frames(self) -> ElementFacts | None:
        """Find the focused element through frames and shadow roots, and return its facts; None if there is none."""
        cdp, frame = self.cdp, await self.root_frame_id()
        document = {"expression": "document", "contextId": await self._world_id(cdp, frame)}
        root = (await cdp.send("Runtime.evaluate", document))["result"]["objectId"]
        for _ in range(MAX_FRAME_DEPTH):
            element = await self._call_function(
                cdp, root, "function () { return this.activeElement ?? this.body }", by_value=False
            )
            if "objectId" not in element:
                return None
            facts = await self._element_facts(cdp, element["objectId"])
            if facts is None or not (facts.frame or facts.shadowed):
                return facts
            request = {"objectId": element["objectId"], "depth": 1, "pierce": True}
            node = (await cdp.send("DOM.describeNode", request))["node"]
            child_root = node.get("contentDocument") or next(iter(node.get("shadowRoots", ())), None)
            if child_root is not None and child_root.get("shadowRootType") != "user-agent":
                frame = node.get("frameId", frame)
                root = await self._resolve_node(cdp, child_root["backendNodeId"], frame)
                continue
            frame_session = await self._session_of_frame(node["frameId"]) if facts.frame and "frameId" in node else None
            if frame_session is None:
                return facts
            cdp, frame = frame_session
            document = {"expression": "document", "contextId": await self._world_id(cdp, frame)}
            root = (await cdp.send("Runtime.evaluate", document))["result"]["objectId"]
        return None

    async def _wait_for_paint(self) -> None:
        """Wait until the top frame has painted its current state."""
        world = await self._world_id(self.cdp, await self.root_frame_id())
        await self.cdp.send(
            "Runtime.evaluate", {"expression": WAIT_FOR_PAINT, "awaitPromise": True, "contextId": world}
        )

    async def _read_text(self, max_characters: int) -> str:
        """Join the visible texts of all frames, up to `max_characters`."""
        texts: list[str] = []
        frames = [(self.cdp, frame) for frame in await self._frame_ids(self.cdp)]
        for frame_session, _ in await self._all_frame_sessions():
            frames.extend((frame_session, frame) for frame in await self._frame_ids(frame_session))
        for cdp, frame in frames:
            if (remaining := max_characters - sum(map(len, texts))) <= 0:
                break
            call = {
                "functionDeclaration": READ_TEXT,
                "executionContextId": await self._world_id(cdp, frame),
                "arguments": [{"value": self._redacted_selector}, {"value": remaining}],
                "returnByValue": True,
            }
            text = _result_value(await cdp.send("Runtime.callFunctionOn", call))
            if text:
                texts.append(text)
        return "\n".join(texts)[:max_characters]

    async def _frame_ids(self, cdp: CDPSession) -> list[str]:
        """Return the DevTools ids of all frames of a session, the outermost first."""
        frame_ids: list[str] = []

        def collect(tree: dict[str, Any]) -> None:
            """Add the id of a frame and of the frames inside it."""
            frame_ids.append(tree["frame"]["id"])
            for child in tree.get("childFrames", ()):
                collect(child)

        collect((await cdp.send("Page.getFrameTree"))["frameTree"])
        return frame_ids

    async def _resolve_node(self, cdp: CDPSession, node_id: int, frame_id: str) -> str:
        """Return the remote object id with which scripts can be run on a DOM node.

        `node_id` is the node's DevTools id (`backendNodeId`). The scripts run in the isolated world of the frame: a
        JavaScript context that shares the DOM with the page, but not its variables.
        """
        params = {"backendNodeId": node_id, "executionContextId": await self._world_id(cdp, frame_id)}
        object_id: str = (await cdp.send("DOM.resolveNode", params))["object"]["objectId"]
        return object_id

    async def _element_facts(self, cdp: CDPSession, object_id: str) -> ElementFacts | None:
        """Inspect the element with a remote object id; None if it is not an element."""
        return msgspec.convert(
            await self._call_function(cdp, object_id, INSPECT_ELEMENT, self._redacted_selector), ElementFacts | None
        )

    async def _call_function(
        self, cdp: CDPSession, object_id: str, function: str, *arguments: str, by_value: bool = True
    ) -> Any:
        """Call a JavaScript function with an element as `this`.

        Returns its result as a JSON value, or as a reference to a remote object unless `by_value`.
        """
        values = [{"value": argument} for argument in arguments]
        params = {
            "functionDeclaration": function,
            "objectId": object_id,
            "arguments": values,
            "returnByValue": by_value,
        }
        response = await cdp.send("Runtime.callFunctionOn", params)
        return _result_value(response) if by_value else response["result"]

    async def _world_id(self, cdp: CDPSession, frame_id: str) -> int:
        """Return the context id of a frame's isolated world, created on first use.

        Scripts in it share the DOM with the page, but the page does not see their variables.
        """
        world_id = self._worlds.get((cdp, frame_id))
        if world_id is None:
            response = await cdp.send("Page.createIsolatedWorld", {"frameId": frame_id, "worldName": WORLD_NAME})
            world_id = self._worlds[cdp, frame_id] = response["executionContextId"]
        return world_id

    async def root_frame_id(self) -> str:
        """Return the DevTools id of the page's top frame."""
        if self._root_frame_id is None:
            self._root_frame_id = (await self.cdp.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        return self._root_frame_id

    async def _session_of_node(self, cdp: CDPSession, node_id: int) -> tuple[CDPSession, str] | None:
        """Return session and frame id of the content of a frame element (`node_id`).

        Returns None if the content is in the same process and session as the element.
        """
        description = (await cdp.send("DOM.describeNode", {"backendNodeId": node_id}))["node"]
        return await self._session_of_frame(description["frameId"]) if "frameId" in description else None

    async def _session_of_frame(self, frame_id: str) -> tuple[CDPSession, str] | None:
        """Return session and frame id of a cross-site frame, which has its own process; None for other frames."""
        return next((session for session in await self._all_frame_sessions() if session[1] == frame_id), None)

    async def _all_frame_sessions(self) -> list[tuple[CDPSession, str]]:
        """Return session and DevTools frame id of each frame that has its own process."""
        for frame in self.page.frames[1:]:
            if frame not in self._frame_sessions:
                try:
                    cdp = await self.page.context.new_cdp_session(frame)
                except Error:
                    continue  # it shares the session of its parent
                await cdp.send("DOM.enable")
                self._frame_sessions[frame] = cdp, (await self._frame_ids(cdp))[0]
        return [self._frame_sessions[frame] for frame in self.page.frames if frame in self._frame_sessions]


def _result_value(response: dict[str, Any]) -> Any:
    """Return the value of a DevTools evaluation; raise `Error` if the script failed."""
    if "exceptionDetails" in response:
        raise Error(str(response["exceptionDetails"].get("text", "the page could not be inspected")))
    return response["result"].get("value")


# Runs in a blank page of our own, so that no script of the page in view sees the image or the boxes.
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
    """The screenshot does not have the declared size."""


class ScreenCapture:
    """Takes screenshots, with redacted areas painted black."""

    def __init__(self, display: Display, settings: BrowserSettings, redaction_page: Page | None) -> None:
        self.display = display
        self.redaction = settings.redaction
        self.device_scale = settings.device_scale
        self.redaction_page = redaction_page

    async def capture(self, view: PageView) -> ScreenImage:
        """Take a screenshot of the display."""
        image = await self._capture(view, Box(0, 0, *self.display.page_size), self.display.scale)
        if (image.width, image.height) != self.display.size:
            raise ImageSizeError(
                f"the screenshot is {image.width}x{image.height}, but the display is {self.display.size}"
            )
        return image

    async def capture_box(self, view: PageView, box: Box) -> ScreenImage:
        """Take a screenshot of a part of the page, rendered at a higher resolution."""
        return await self._capture(view, box, self.display.magnification(box))

    async def _capture(self, view: PageView, box: Box, scale: float) -> ScreenImage:
        """Take a screenshot of a box of the page, `scale` pixels per CSS pixel."""
        hidden = await self._redacted_boxes(view)
        # The clip is relative to the document, not to the scrolled viewport.
        viewport = (await view.cdp.send("Page.getLayoutMetrics"))["cssVisualViewport"]
        x, y = box.x + viewport["pageX"], box.y + viewport["pageY"]
        clip = {"x": x, "y": y, "width": box.width, "height": box.height}
        params: dict[str, Any] = {
            "format": "png",
            "clip": {**clip, "scale": scale / self.device_scale},
        }
        data: str = (await view.cdp.send("Page.captureScreenshot", params))["data"]
        if self.redaction_page is not None:
            # An element that moved meanwhile is painted black at both positions.
            hidden += await self._redacted_boxes(view)
            boxes = [_to_image_pixels(box, scale, hidden_box) for hidden_box in hidden]
            data = await self.redaction_page.evaluate(PAINT_BLACK, [data, boxes])
        width, height = struct.unpack(">II", base64.b64decode(data[:32])[16:24])
        return ScreenImage(data=data, width=width, height=height)

    async def _redacted_boxes(self, view: PageView) -> list[Box]:
        """Return the boxes to paint black: configured areas and selected elements."""
        if self.redaction_page is None:
            return []
        boxes = [Box(*area) for area in self.redaction.areas]
        for selector in self.redaction.selectors:
            for frame in view.page.frames:
                elements = await frame.query_selector_all(selector)
                boxes += [Box(**bounds) for element in elements if (bounds := await element.bounding_box()) is not None]
        return boxes


def _to_image_pixels(clip: Box, scale: float, box: Box) -> tuple[float, float, float, float]:
    """Convert a box to x, y, width and height in pixels of the screenshot.

    It is one pixel larger on each side, to allow for rounding.
    """
    x, y = (box.x - clip.x) * scale - 1, (box.y - clip.y) * scale - 1
    return x, y, box.width * scale + 2, box.height * scale + 2
