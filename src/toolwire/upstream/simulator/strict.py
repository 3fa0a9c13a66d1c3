"""What is rejected, as the provider would reject it: in its words, and with its kind of error."""

import msgspec

from toolwire.canonical.content import Message, Reasoning, Text, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.canonical.request import Request
from toolwire.codec.interface import Codec, Route

from .dialects import signs_calls, thinks
from .proofs import Proofs, item_id, shown
from .reading import current_turn

_OPENAI_JSON = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library "
    "correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)"
)
_OPENAI_KEY = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth "
    "(i.e. Authorization: Bearer YOUR_KEY)."
)
_GOOGLE_KEY = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other "
    "form of API consumer identity to call this API."
)
_BAD_JSON = {
    "anthropic": "The request body is not valid JSON: {why}",
    "openai-chat": _OPENAI_JSON,
    "openai-responses": _OPENAI_JSON,
    "gemini": "Invalid JSON payload received. {why}",
    "gemini-interactions": "Invalid JSON payload received. {why}",
    "ollama": "invalid JSON: {why}",
    "openrouter": "Invalid JSON in request body: {why}",
}
_NO_KEY: dict[str, tuple[ErrorKind, str]] = {
    "anthropic": ("authentication", "x-api-key header is required"),
    "openai-chat": ("authentication", _OPENAI_KEY),
    "openai-responses": ("authentication", _OPENAI_KEY),
    "gemini": ("permission", _GOOGLE_KEY),
    "gemini-interactions": ("permission", _GOOGLE_KEY),
    "ollama": ("authentication", "unauthorized"),
    "openrouter": ("authentication", "No auth credentials found"),
}
_NO_MODEL = {
    "anthropic": "model: {model}",
    "gemini": "models/{model} is not found for API version v1beta, or is not supported for generateContent.",
    "gemini-interactions": "models/{model} is not found.",
    "ollama": "model '{model}' not found",
    "openrouter": "No endpoints found for {model}.",
}
_MODIFIED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must "
    "remain as they were in the original response."
)
_EXPECTED = (
    "Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` "
    "message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
)


class Refused(Exception):
    """The request is refused with this error."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


def admitted(codec: Codec, body: bytes, route: Route) -> Request:
    """The request, if the provider would take it. What its history proves is for `demand_proofs`."""
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(bad_json(codec.name, str(error))) from None
    for finding in codec.check_request(whole, model=route.model, version=route.version):
        if finding.level == "error":
            raise Refused(
                ApiError(kind="invalid_request", message=finding.message, param=_parameter(finding.path) or None)
            )
    try:
        return codec.decode_request(body, route)
    except DecodeError as error:
        place = _parameter(error.path)
        said = f"{place or 'body'}: expected {error.expected}, got {error.got}"
        raise Refused(ApiError(kind="invalid_request", message=said, param=place or None)) from None


def _parameter(pointer: str) -> str:
    """A place as OpenAI names it."""
    steps = [f"[{step}]" if step.isdigit() else f".{step}" for step in pointer.split("/")[1:]]
    return "".join(steps).lstrip(".").replace("~1", "/").replace("~0", "~")


def bad_json(protocol: str, why: str) -> ApiError:
    return ApiError(kind="invalid_request", message=_BAD_JSON[protocol].format(why=why))


def no_key(protocol: str) -> ApiError:
    kind, said = _NO_KEY[protocol]
    return ApiError(kind=kind, message=said)


def no_model(protocol: str, model: str) -> ApiError:
    said = _NO_MODEL.get(protocol, "The model `{model}` does not exist or you do not have access to it.")
    code = "model_not_found" if protocol.startswith("openai") else None
    return ApiError(kind="not_found", message=said.format(model=model), code=code)


def no_answer(protocol: str, kind: str, id: str) -> ApiError:
    """A stored answer that is not there."""
    if protocol == "openai-responses" and kind == "response":
        said = f"Previous response with id '{id}' not found."
        code, place = "previous_response_not_found", "previous_response_id"
        return ApiError(kind="invalid_request", message=said, code=code, param=place)
    return ApiError(kind="not_found", message=f"{kind.capitalize()} with id '{id}' not found.")


# ---- proofs that must come back


def demand_proofs(request: Request, protocol: str, proofs: Proofs) -> None:
    """Refuse a history whose proofs are edited or another's, or missing where the provider wants them back."""
    match protocol:
        case "anthropic":
            _demand_thinking(request, proofs)
        case "openai-responses":
            _demand_items(request, proofs)
        case "gemini":
            _demand_signed_calls(request, proofs)
        case "gemini-interactions":
            _demand_thoughts(request, proofs)
        case "openrouter":
            if any(not _is_genuine(part, proofs) for message in request.messages for part in message.parts):
                raise Refused(ApiError(kind="invalid_request", message="Provider returned error"))
        case _:
            pass


def _is_genuine(part: object, proofs: Proofs) -> bool:
    """Whether a part has no proof, or one that holds."""
    if isinstance(part, Reasoning) and part.seal is not None:
        return proofs.holds(part.seal.data, shown(part))
    if isinstance(part, ToolCall) and part.seal is not None:
        return proofs.holds(part.seal.data, part.name)
    return not isinstance(part, Text) or part.seal is None or proofs.holds(part.seal.data)


def _after_thinking(message: Message, proofs: Proofs) -> ToolCall | None:
    """The first call in it that thinking of ours led to."""
    calls = (part for part in message.parts if isinstance(part, ToolCall))
    return next((call for call in calls if call.id and proofs.nonce_of(call.id) is not None), None)


def _refuse(said: str, code: str | None = None) -> Refused:
    return Refused(ApiError(kind="invalid_request", message=said, code=code))


def _demand_thinking(request: Request, proofs: Proofs) -> None:
    for number, message in enumerate(request.messages):
        for place, part in enumerate(message.parts):
            if isinstance(part, Reasoning) and (part.seal is None or not _is_genuine(part, proofs)):
                field = "`data` in `redacted_thinking`" if part.hidden == "redacted" else "`signature` in `thinking`"
                raise _refuse(f"messages.{number}.content.{place}: Invalid {field} block")
    if not thinks("anthropic", request):
        return
    manual = request.thinking is not None and request.thinking.budget_tokens is not None
    start = current_turn(request.messages)
    for number, message in enumerate(request.messages[start:], start):
        thought = any(isinstance(part, Reasoning) for part in message.parts)
        if not thought and _after_thinking(message, proofs) is not None:
            place = next(at for at, part in enumerate(message.parts) if isinstance(part, ToolCall))
            at = f"messages.{number}.content.{place}"
            raise _refuse(f"{at}.type: {_EXPECTED}" if manual else f"{at}: {_MODIFIED}")


def _demand_items(request: Request, proofs: Proofs) -> None:
    """An item that is named belongs to the reasoning that led to it; one without a name is taken as it is."""
    known: set[str | None] = set()
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Reasoning):
                known.add(message.id)
                if not _is_genuine(part, proofs):
                    said = f"The encrypted content for item {message.id} could not be verified. "
                    said += "Reason: Encrypted content could not be decrypted or parsed."
                    raise _refuse(said, "invalid_encrypted_content")
        call = _after_thinking(message, proofs)
        if call is not None and message.id is not None and None not in known:
            wanted = item_id(proofs.nonce_of(call.id or "") or "")
            if wanted not in known:
                kind = "custom_tool_call" if call.shape == "freeform" else "function_call"
                said = f"Item '{message.id}' of type '{kind}' was provided without its required 'reasoning' item: "
                raise _refuse(f"{said}'{wanted}'.")


def _demand_signed_calls(request: Request, proofs: Proofs) -> None:
    """That the first call of each step is signed at all is one of the codec's rules; a dummy is no seal."""
    if not signs_calls(request.model):
        return
    for message in request.messages[current_turn(request.messages) :]:
        if any(not _is_genuine(part, proofs) for part in message.parts):
            raise _refuse("Corrupted thought signature.")


def _demand_thoughts(request: Request, proofs: Proofs) -> None:
    if not signs_calls(request.model):
        return
    start = current_turn(request.messages)
    thought = False
    for number, message in enumerate(request.messages[start:], start):
        if any(not _is_genuine(part, proofs) for part in message.parts):
            raise _refuse("Invalid thought signature.")
        thought = thought or any(isinstance(part, Reasoning) and part.seal is not None for part in message.parts)
        call = _after_thinking(message, proofs)
        if call is not None and not thought:
            raise _refuse(
                f"Function call `{call.name}` in the `{number + 1}.` content block is missing a `thought_signature`."
            )
        if message.role == "user":
            thought = False
