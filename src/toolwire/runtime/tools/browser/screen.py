"""Pictures of a page: always of the declared size, and black where they must be."""

import base64
import struct
from typing import Any

from playwright.async_api import Page

from .display import Box, Display
from .observation import Picture
from .settings import BrowserSettings
from .view import View

# In a page of our own, which never loaded anything: no script of the page in view sees the picture or the boxes.
BLACKEN = """async ([data, boxes]) => {
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


class WrongSize(Exception):
    pass


class Screen:
    def __init__(self, display: Display, settings: BrowserSettings, darkroom: Page | None) -> None:
        self.display = display
        self.redaction = settings.redaction
        self.device_scale = settings.device_scale
        self.darkroom = darkroom

    async def picture(self, view: View) -> Picture:
        taken = await self._take(view, Box(0, 0, *self.display.page), self.display.scale)
        if (taken.width, taken.height) != self.display.size:
            raise WrongSize(f"the picture is {taken.width}x{taken.height}, but the display is {self.display.size}")
        return taken

    async def part(self, view: View, box: Box) -> Picture:
        """Drawn anew at its size, so that it shows more than the whole picture does."""
        return await self._take(view, box, self.display.magnification(box))

    async def _take(self, view: View, box: Box, scale: float) -> Picture:
        hidden = await self._hidden(view)
        # A clip counts from where the document begins, which is above the view once it is scrolled.
        shown = (await view.cdp.send("Page.getLayoutMetrics"))["cssVisualViewport"]
        x, y = box.x + shown["pageX"], box.y + shown["pageY"]
        clip = {"x": x, "y": y, "width": box.width, "height": box.height}
        asked: dict[str, Any] = {
            "format": "png",
            "clip": {**clip, "scale": scale / self.device_scale},
        }
        data: str = (await view.cdp.send("Page.captureScreenshot", asked))["data"]
        if self.darkroom is not None:
            # What moved meanwhile is black at both of its places.
            hidden += await self._hidden(view)
            boxes = [_within(box, scale, one) for one in hidden]
            data = await self.darkroom.evaluate(BLACKEN, [data, boxes])
        width, height = struct.unpack(">II", base64.b64decode(data[:32])[16:24])
        return Picture(data=data, width=width, height=height)

    async def _hidden(self, view: View) -> list[Box]:
        if self.darkroom is None:
            return []
        boxes = [Box(*area) for area in self.redaction.areas]
        for selector in self.redaction.selectors:
            for frame in view.page.frames:
                elements = await frame.query_selector_all(selector)
                boxes += [Box(**found) for one in elements if (found := await one.bounding_box()) is not None]
        return boxes


def _within(clip: Box, scale: float, box: Box) -> tuple[float, float, float, float]:
    """In pixels of the picture, one wider on every side than what rounding could leave bare."""
    x, y = (box.x - clip.x) * scale - 1, (box.y - clip.y) * scale - 1
    return x, y, box.width * scale + 2, box.height * scale + 2
