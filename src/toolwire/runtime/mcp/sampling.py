"""MCP sampling: a server asks for an answer of a model, within limits and after approval."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import mcp_types as types
import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Inline, Media, Message, Part, Text
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response, StopReason, Usage, usage_counts
from toolwire.canonical.tools import Sampling
from toolwire.runtime.calls.approval import ApprovalRequest
from toolwire.runtime.mcp import limits
from toolwire.runtime.mcp.config import SamplingConfig
from toolwire.runtime.model import Model, ModelFailed
from toolwire.runtime.tool import ToolContext

ModelOpener: TypeAlias = Callable[[str], Awaitable[Model]]
"""Opens a model by name."""

_REJECTED = -1
"""The specification's error code for a request that the user rejects."""

_STOP_REASONS: dict[StopReason, str] = {
    "end_turn": "endTurn",
    "max_tokens": "maxTokens",
    "context_window": "maxTokens",
    "stop_sequence": "stopSequence",
}


class SamplingRefused(Exception):
    """A sampling request is not answered."""

    def __init__(self, message: str, code: int = types.INVALID_PARAMS) -> None:
        super().__init__(message)
        self.code = code


class Sampler:
    """Answers the sampling requests of one server."""

    def __init__(self, server: str, config: SamplingConfig, open_model: ModelOpener | None) -> None:
        self.config = config
        self._server = server
        self._open_model = open_model
        self._opened: Model | None = None
        self._approved_run = ""

    async def sample(
        self, params: types.CreateMessageRequestParams, context: ToolContext, remaining_tokens: int | None
    ) -> tuple[types.CreateMessageResult, Usage]:
        """Return the model's answer and its usage; raise `SamplingRefused` if there is none.

        `remaining_tokens` is what the run may still use; None if it has no limit.
        """
        request = self._build_request(params, remaining_tokens)
        model = await self._model(context)
        await self._request_approval(model, request, context)
        try:
            response = fold([event async for event in model.stream(replace(request, model=model.name))])
        except ModelFailed as error:
            raise SamplingRefused(f"the model failed: {error}", types.INTERNAL_ERROR) from None
        if response.error is not None:
            raise SamplingRefused(f"the model failed: {response.error.message}", types.INTERNAL_ERROR)
        usage = replace(usage_counts(response.usage) or Usage(), requests=1)
        return _encode_response(response, model.name), usage

    async def close(self) -> None:
        """Close the model, if one was opened."""
        if self._opened is not None:
            model, self._opened = self._opened, None
            await model.close()

    async def _model(self, context: ToolContext) -> Model:
        """Return the configured model, or the run's own."""
        if self.config.model is None:
            if context.model is None:
                raise SamplingRefused("no model is configured for sampling", types.INTERNAL_ERROR)
            return context.model
        if self._opened is None:
            if self._open_model is None:
                raise SamplingRefused("models can't be opened here", types.INTERNAL_ERROR)
            self._opened = await self._open_model(self.config.model)
        return self._opened

    def _build_request(self, params: types.CreateMessageRequestParams, remaining_tokens: int | None) -> Request:
        """Build the model request, with the output limit that applies."""
        if params.tools:
            raise SamplingRefused("sampling with tools is not supported")
        if sum(map(_message_length, params.messages)) + len(params.system_prompt or "") > limits.MAX_SAMPLING_LENGTH:
            raise SamplingRefused(f"the messages are longer than {limits.MAX_SAMPLING_LENGTH} characters")
        max_tokens = min(params.max_tokens, self.config.max_tokens)
        if remaining_tokens is not None:
            max_tokens = min(max_tokens, remaining_tokens)
        if max_tokens <= 0:
            raise SamplingRefused("no tokens are left for sampling")
        return Request(
            origin="",
            messages=tuple(_decode_message(message) for message in params.messages),
            system=(Text(text=params.system_prompt),) if params.system_prompt else None,
            sampling=Sampling(
                max_tokens=max_tokens, temperature=params.temperature, stop=tuple(params.stop_sequences or ()) or None
            ),
            stream=True,
            include_usage=True,
        )

    async def _request_approval(self, model: Model, request: Request, context: ToolContext) -> None:
        """Show the request to the user; raise `SamplingRefused` unless it is approved."""
        if self.config.approval == "never" or self._approved_run == context.run:
            return
        max_tokens = 0 if request.sampling is None else request.sampling.max_tokens
        arguments = {"server": self._server, "model": model.name, "max_tokens": max_tokens}
        answer = await context.approver.approve(
            ApprovalRequest(
                run=context.run,
                call_id=context.id,
                tool="sampling",
                arguments=msgspec.json.encode(arguments).decode(),
                reason=f"MCP server {self._server!r} asks the model during {context.tool}",
                preview=_preview(request),
            )
        )
        if answer not in ("yes", "always"):
            raise SamplingRefused("the user rejected the sampling request", _REJECTED)
        if answer == "always":
            self._approved_run = context.run


def _message_length(message: types.SamplingMessage) -> int:
    """Return the number of characters in a message."""
    return sum(len(getattr(block, "text", "") or getattr(block, "data", "")) for block in message.content_as_list)


def _decode_message(message: types.SamplingMessage) -> Message:
    """Decode one message of the server's conversation."""
    return Message(role=message.role, parts=tuple(_decode_block(block) for block in message.content_as_list))


def _decode_block(block: types.SamplingMessageContentBlock) -> Part:
    """Decode one content block; raise `SamplingRefused` for calls and results of tools."""
    match block:
        case types.TextContent():
            return Text(text=block.text)
        case types.ImageContent():
            return Media(kind="image", source=Inline(data=block.data), media_type=block.mime_type)
        case types.AudioContent():
            return Media(kind="audio", source=Inline(data=block.data), media_type=block.mime_type)
        case _:
            raise SamplingRefused("sampling with tools is not supported")


def _encode_response(response: Response, name: str) -> types.CreateMessageResult:
    """Encode the model's answer."""
    candidate = response.candidates[0] if response.candidates else None
    parts = [part for message in candidate.messages for part in message.parts] if candidate is not None else []
    reason = candidate.stop.reason if candidate is not None and candidate.stop is not None else "end_turn"
    return types.CreateMessageResult(
        role="assistant",
        content=types.TextContent(text="".join(part.text for part in parts if isinstance(part, Text))),
        model=response.model or name,
        stop_reason=_STOP_REASONS.get(reason, reason),
    )


def _preview(request: Request) -> str:
    """Render the conversation for the approval prompt, without invisible characters."""
    lines = [f"system: {text.text}" for text in request.system or ()]
    for message in request.messages:
        lines += [f"{message.role}: {part.text if isinstance(part, Text) else '[media]'}" for part in message.parts]
    return limits.sanitize_text("\n".join(lines), limits.MAX_QUESTION_LENGTH)
