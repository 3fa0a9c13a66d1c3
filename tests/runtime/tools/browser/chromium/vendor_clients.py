"""Clients as users of each vendor write them: the vendor's SDK, its computer tool, and plain Playwright."""

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import anthropic
import httpx
import openai
from google import genai
from google.genai import types
from playwright.sync_api import Page, sync_playwright

from toolwire.runtime.tools.browser import find_chromium

WIDTH, HEIGHT = 1280, 800
PROMPT = "Send the form."
Seen = Callable[[Any], None]


@contextmanager
def open_page(url: str) -> Iterator[Page]:
    """Open a page in a browser without any guard."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(None), args=["--disable-gpu", "--disable-smooth-scrolling"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(url)
        yield page
        browser.close()


class Client:
    """One conversation about one page. `seen` receives the headers of every gateway response."""

    http: ClassVar[Any] = httpx.Client

    def __init__(self, url: str, page: Page, seen: Seen, *, stream: bool, agrees: bool = False) -> None:
        self.url = url
        self.page = page
        self.stream = stream
        self.agrees = agrees
        self.hooks = {"response": [seen]}

    def work(self) -> str:
        """Run until the model responds with text only, and return it."""
        with self.http(timeout=30, event_hooks=self.hooks) as http:
            return self.converse(http)

    def converse(self, http: Any) -> str:
        raise NotImplementedError

    def shot(self) -> bytes:
        self.page.wait_for_timeout(100)
        return self.page.screenshot()

    def shot_text(self) -> str:
        return base64.b64encode(self.shot()).decode()

    def drag(self, *path: tuple[float, float]) -> None:
        self.page.mouse.move(*path[0])
        self.page.mouse.down()
        for x, y in path[1:]:
            self.page.mouse.move(x, y, steps=5)
        self.page.mouse.up()

    def wheel(self, x: float, y: float, dx: float, dy: float) -> None:
        self.page.mouse.move(x, y)
        self.page.mouse.wheel(dx, dy)


class Anthropic(Client):
    """Anthropic's browser toolset: a tool per action, with the browser state beside each screenshot."""

    tool: ClassVar[dict[str, Any]] = {"type": "browser_toolset_20260801"}
    model = "claude-opus-6"

    http = anthropic.DefaultHttpxClient

    def converse(self, http: Any) -> str:
        client = anthropic.Anthropic(base_url=self.url, api_key="key", max_retries=0, http_client=http)
        said: list[Any] = [{"role": "user", "content": PROMPT}]
        while True:
            asked: dict[str, Any] = {"model": self.model, "max_tokens": 2000, "tools": [self.tool], "messages": said}
            if self.stream:
                with client.messages.stream(**asked) as stream:
                    message = stream.get_final_message()
            else:
                message = client.messages.create(**asked)
            said.append({"role": "assistant", "content": message.content})
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in message.content if block.type == "text")
            said.append({"role": "user", "content": [self._result(call) for call in calls]})

    def _result(self, call: Any) -> dict[str, Any]:
        text = self.act(call.name, dict(call.input))
        source = {"type": "base64", "media_type": "image/png", "data": self.shot_text()}
        tab = {"tab_id": "t1", "title": self.page.title(), "url": self.page.url, "active": True}
        content: list[Any] = [{"type": "text", "text": text}] if text else []
        content += [{"type": "image", "source": source}, {"type": "browser_state", "tabs": [tab]}]
        return {"type": "tool_result", "tool_use_id": call.id, "toolset_name": "browser", "content": content}

    def act(self, name: str, said: dict[str, Any]) -> str | None:
        mouse, keyboard = self.page.mouse, self.page.keyboard
        at = said.get("target", {})
        match name:
            case "screenshot":
                return None
            case "left_click":
                mouse.click(at["x"], at["y"])
            case "type":
                keyboard.type(said["text"])
            case "key":
                keyboard.press({"Return": "Enter"}.get(said["text"], said["text"]))
            case "left_click_drag":
                self.drag((said["from"]["x"], said["from"]["y"]), (at["x"], at["y"]))
            case "scroll":
                by = 100 * said["scroll_amount"]
                self.wheel(at["x"], at["y"], 0, {"down": by, "up": -by}[said["scroll_direction"]])
            case "get_page_text":
                return self.page.inner_text("body")
            case _:
                raise ValueError(name)
        return None


class AnthropicSingle(Anthropic):
    """Anthropic's earlier computer tool: one tool with an `action` and a declared display."""

    tool: ClassVar[dict[str, Any]] = {
        "type": "computer_20251124",
        "name": "computer",
        "display_width_px": WIDTH,
        "display_height_px": HEIGHT,
    }
    model = "claude-opus-4-8"

    def _result(self, call: Any) -> dict[str, Any]:
        self.act(call.input["action"], dict(call.input))
        source = {"type": "base64", "media_type": "image/png", "data": self.shot_text()}
        return {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "image", "source": source}]}

    def act(self, name: str, said: dict[str, Any]) -> str | None:
        for own, theirs in (("coordinate", "target"), ("start_coordinate", "from")):
            if own in said:
                said[theirs] = dict(zip("xy", said[own], strict=True))
        return super().act(name, said)


class Openai(Client):
    """OpenAI's `computer` calls with several actions each; history by `previous_response_id`."""

    def converse(self, http: Any) -> str:
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="key", max_retries=0, http_client=http)
        given: Any = PROMPT
        before: str | None = None
        while True:
            asked: dict[str, Any] = {"model": "gpt-5.5", "tools": [{"type": "computer"}], "input": given}
            if before is not None:
                asked["previous_response_id"] = before
            if self.stream:
                with client.responses.stream(**asked) as stream:
                    response = stream.get_final_response()
            else:
                response = client.responses.create(**asked)
            before = response.id
            calls = [item for item in response.output if item.type == "computer_call"]
            if not calls:
                return str(response.output_text)
            given = [self._result(call) for call in calls]

    def _result(self, call: Any) -> dict[str, Any]:
        checks = [check.model_dump(exclude_none=True) for check in call.pending_safety_checks]
        assert self.agrees or not checks
        for action in call.actions:
            self.act(action)
        url = f"data:image/png;base64,{self.shot_text()}"
        shown = {"type": "computer_screenshot", "image_url": url}
        result = {"type": "computer_call_output", "call_id": call.call_id, "output": shown}
        return result | ({"acknowledged_safety_checks": checks} if checks else {})

    def act(self, action: Any) -> None:
        mouse, keyboard = self.page.mouse, self.page.keyboard
        match action.type:
            case "screenshot":
                pass
            case "click":
                mouse.click(action.x, action.y, button={"wheel": "middle"}.get(action.button, action.button))
            case "type":
                keyboard.type(action.text)
            case "keypress":
                keyboard.press("+".join(key.capitalize() for key in action.keys))
            case "drag":
                self.drag(*((point.x, point.y) for point in action.path))
            case "scroll":
                self.wheel(action.x, action.y, action.scroll_x, action.scroll_y)
            case _:
                raise ValueError(action.type)


class Gemini(Client):
    """Google's functions on a grid of 1000 by 1000, with the URL beside each screenshot."""

    model = "gemini-3.8-flash"

    def converse(self, http: Any) -> str:
        options = types.HttpOptions(base_url=self.url, httpx_client=http)
        client = genai.Client(api_key="key", http_options=options)
        use = types.ComputerUse(environment=types.Environment.ENVIRONMENT_BROWSER)
        config = types.GenerateContentConfig(tools=[types.Tool(computer_use=use)])
        said: list[Any] = [types.Content(role="user", parts=[types.Part(text=PROMPT), self._picture()])]
        while True:
            if self.stream:
                chunks = list(client.models.generate_content_stream(model=self.model, contents=said, config=config))
            else:
                chunks = [client.models.generate_content(model=self.model, contents=said, config=config)]
            contents = [one.candidates[0].content for one in chunks if one.candidates]
            parts = [part for content in contents if content is not None for part in content.parts or ()]
            said.append(types.Content(role="model", parts=parts))
            calls = [part.function_call for part in parts if part.function_call is not None]
            if not calls:
                return "".join(part.text or "" for part in parts)
            said.append(types.Content(role="user", parts=[self._result(call) for call in calls]))

    def _picture(self) -> types.Part:
        return types.Part.from_bytes(data=self.shot(), mime_type="image/png")

    def _result(self, call: types.FunctionCall) -> types.Part:
        args = dict(call.args or {})
        decision = args.pop("safety_decision", None)
        assert self.agrees or decision is None
        self.act(str(call.name), args)
        blob = types.FunctionResponseBlob(mime_type="image/png", data=self.shot())
        said = {"url": self.page.url} | ({"safety_acknowledgement": "true"} if decision else {})
        shown = [types.FunctionResponsePart(inline_data=blob)]
        result = types.FunctionResponse(id=call.id, name=call.name, response=said, parts=shown)
        return types.Part(function_response=result)

    def act(self, name: str, args: dict[str, Any]) -> None:
        keyboard = self.page.keyboard
        match name:
            case "take_screenshot":
                pass
            case "click":
                self.page.mouse.click(*_at(args))
            case "type":
                keyboard.type(args["text"])
                if args.get("press_enter"):
                    keyboard.press("Enter")
            case "press_key":
                keyboard.press(args["key"])
            case "drag_and_drop":
                self.drag(_at(args, "start_x", "start_y"), _at(args, "end_x", "end_y"))
            case "scroll":
                by = args["magnitude_in_pixels"]
                self.wheel(*_at(args), 0, {"down": by, "up": -by}[args["direction"]])
            case _:
                raise ValueError(name)


class GeminiEarlier(Gemini):
    """Google's functions before Gemini 3.5."""

    model = "gemini-2.5-computer-use-preview-10-2025"

    def act(self, name: str, args: dict[str, Any]) -> None:
        keyboard = self.page.keyboard
        match name:
            case "open_web_browser":
                pass
            case "click_at":
                self.page.mouse.click(*_at(args))
            case "type_text_at":
                self.page.mouse.click(*_at(args))
                keyboard.type(args["text"])
                if args["press_enter"]:
                    keyboard.press("Enter")
            case "key_combination":
                keyboard.press(args["keys"])
            case "drag_and_drop":
                self.drag(_at(args), _at(args, "destination_x", "destination_y"))
            case "scroll_at":
                by = args["magnitude"] * HEIGHT / 1000
                self.wheel(*_at(args), 0, {"down": by, "up": -by}[args["direction"]])
            case _:
                raise ValueError(name)


def _at(args: dict[str, Any], x: str = "x", y: str = "y") -> tuple[float, float]:
    return args[x] * WIDTH / 1000, args[y] * HEIGHT / 1000
