"""Rejections of invalid requests, with each provider's error kinds and messages.

Signatures of the simulated model's thinking, and call ids that it recognizes as its own.

Both are a nonce and a MAC. The nonce is a digest of the conversation, so that the same request gets the same bytes.
A signature also covers the thinking that it belongs to; a call id encodes whether thinking preceded the call. Each
account and model has a key of its own, so that it refuses the signatures of others. All accept those of the default
key, which recorded conversations have.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode

import msgspec

from toolwire.canonical.content import Message, Reasoning, ReasoningText, Signature, Text, ToolCall
from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind
from toolwire.canonical.request import Request
from toolwire.codec.interface import Codec, Route
from toolwire.codec.models.gemini import signs_calls
from toolwire.upstream.simulator.prompt import current_turn_start
from toolwire.upstream.simulator.provider_traits import is_thinking_enabled

_DEFAULT_KEY = b"toolwire's simulated model: anyone may know this key"
# The first bytes of each vendor's signatures, which are EqQB..., gAAAA... and CiQB... in base64.
_SIGNATURE_PREFIXES = {"anthropic": b"\x12\xa4\x01", "openai": b"\x80\x00\x00\x00\x00\x00", "google": b"\x0a\x24\x01"}
_NONCE_BYTES = 12
_MAC_BYTES = 20
_ID_MAC_CHARS = 8


class SignatureKey:
    """The key that signs and verifies thinking and call ids."""

    def __init__(self, key: bytes = _DEFAULT_KEY) -> None:
        self._key = key

    def derive(self, name: str) -> "SignatureKey":
        """Return the key of an account or a model; an empty name returns this key."""
        return SignatureKey(hmac.digest(self._key, name.encode(errors="surrogatepass"), "sha256")) if name else self

    def sign(self, issuer: str, nonce: str, bound_text: str = "") -> Signature:
        """Return a signature of the issuer's kind that covers `bound_text`."""
        seed = hashlib.blake2s(nonce.encode(), digest_size=_NONCE_BYTES).digest()
        data = (
            _SIGNATURE_PREFIXES.get(issuer, _SIGNATURE_PREFIXES["openai"])
            + seed
            + self._mac(seed, bound_text, _MAC_BYTES)
        )
        kind = "signature" if issuer in ("anthropic", "google") else "encrypted"
        return Signature(issuer=issuer, data=b64encode(data).decode(), kind=kind)  # type: ignore[arg-type]

    def is_valid(self, data: str, bound_text: str = "") -> bool:
        """Return whether this key made a signature for `bound_text`, or for thinking that was not shown.

        Some clients send it in URL-safe base64.
        """
        try:
            decoded = b64decode(data.translate(_URLSAFE_TO_STANDARD) + "=" * (-len(data) % 4), validate=True)
        except ValueError:
            return False
        seed, mac = decoded[-_MAC_BYTES - _NONCE_BYTES : -_MAC_BYTES], decoded[-_MAC_BYTES:]
        return any(
            hmac.compare_digest(key._mac(seed, text, _MAC_BYTES), mac)  # noqa: SLF001 - of this class
            for key in (self, _RECORDED)
            for text in (bound_text, "")
        )

    def make_call_id(self, prefix: str, nonce: str, number: int, *, after_thinking: bool) -> str:
        """Return a call id that encodes the nonce, and whether thinking preceded the call."""
        body = f"{nonce[:12]}{number:04x}"
        return f"{prefix}{body}{self._call_id_mac(body, after_thinking=after_thinking)}"

    def thinking_nonce(self, id: str) -> str | None:
        """Return the nonce that a call id carries if thinking preceded the call, else None."""
        body, mac = id[-16 - _ID_MAC_CHARS : -_ID_MAC_CHARS], id[-_ID_MAC_CHARS:]
        is_own = any(
            hmac.compare_digest(key._call_id_mac(body, after_thinking=True).encode(), mac.encode())  # noqa: SLF001
            for key in (self, _RECORDED)
        )
        return body[:12] if is_own else None

    def _call_id_mac(self, body: str, *, after_thinking: bool) -> str:
        """Return the MAC of a call id, in hex."""
        return self._mac(body.encode(), "thought" if after_thinking else "", _ID_MAC_CHARS // 2).hex()

    def _mac(self, seed: bytes, text: str, size: int) -> bytes:
        """Return the first `size` bytes of the HMAC of a text; `seed` separates the uses."""
        return hmac.digest(self._key, seed + b"\0" + text.encode(errors="surrogatepass"), "sha256")[:size]


_RECORDED = SignatureKey()
_URLSAFE_TO_STANDARD = str.maketrans("-_", "+/")


def visible_reasoning(part: Reasoning) -> str:
    """Return the visible text of a reasoning part."""
    return "".join(block.text for block in part.content if isinstance(block, ReasoningText))


def reasoning_item_id(nonce: str) -> str:
    """Return the id of the reasoning item in a response, derived from the nonce in its call ids."""
    return "rs_" + hashlib.blake2s(nonce[:12].encode(), digest_size=24).hexdigest()


_OPENAI_INVALID_JSON = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library "
    "correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)"
)
_OPENAI_MISSING_KEY = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth "
    "(i.e. Authorization: Bearer YOUR_KEY)."
)
_GOOGLE_MISSING_KEY = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other "
    "form of API consumer identity to call this API."
)
_INVALID_JSON = {
    "anthropic": "The request body is not valid JSON: {why}",
    "openai-chat": _OPENAI_INVALID_JSON,
    "openai-responses": _OPENAI_INVALID_JSON,
    "gemini": "Invalid JSON payload received. {why}",
    "gemini-interactions": "Invalid JSON payload received. {why}",
    "ollama": "invalid JSON: {why}",
    "openrouter": "Invalid JSON in request body: {why}",
}
_MISSING_KEY: dict[str, tuple[ErrorKind, str]] = {
    "anthropic": ("authentication", "x-api-key header is required"),
    "openai-chat": ("authentication", _OPENAI_MISSING_KEY),
    "openai-responses": ("authentication", _OPENAI_MISSING_KEY),
    "gemini": ("permission", _GOOGLE_MISSING_KEY),
    "gemini-interactions": ("permission", _GOOGLE_MISSING_KEY),
    "ollama": ("authentication", "unauthorized"),
    "openrouter": ("authentication", "No auth credentials found"),
}
_MODEL_NOT_FOUND = {
    "anthropic": "model: {model}",
    "gemini": "models/{model} is not found for API version v1beta, or is not supported for generateContent.",
    "gemini-interactions": "models/{model} is not found.",
    "ollama": "model '{model}' not found",
    "openrouter": "No endpoints found for {model}.",
}
_THINKING_MODIFIED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must "
    "remain as they were in the original response."
)
_THINKING_EXPECTED = (
    "Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` "
    "message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
)


class ProviderRejection(Exception):
    """The request is rejected with this error."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


def decode_valid_request(codec: Codec, body: bytes, route: Route, *, check: bool = True) -> Request:
    """Decode the request, or reject it as the provider would. `require_signatures` checks its signatures.

    Without `check` only undecodable requests are rejected.
    """
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProviderRejection(invalid_json_error(codec.name, str(error))) from None
    for finding in codec.check_request(decoded, model=route.model, version=route.version) if check else ():
        if finding.level == "error":
            raise ProviderRejection(
                ApiError(kind="invalid_request", message=finding.message, param=_parameter_name(finding.path) or None)
            )
    try:
        return codec.decode_request(body, route)
    except DecodeError as error:
        param = _parameter_name(error.path)
        message = f"{param or 'body'}: expected {error.expected}, got {error.got}"
        raise ProviderRejection(ApiError(kind="invalid_request", message=message, param=param or None)) from None


def _parameter_name(pointer: str) -> str:
    """Convert a JSON pointer to the notation of OpenAI's `param` field, such as `messages[0].role`."""
    steps = [f"[{step}]" if step.isdigit() else f".{step}" for step in pointer.split("/")[1:]]
    return "".join(steps).lstrip(".").replace("~1", "/").replace("~0", "~")


def invalid_json_error(protocol: str, reason: str) -> ApiError:
    """Return the provider's error for a body that is not JSON."""
    return ApiError(kind="invalid_request", message=_INVALID_JSON[protocol].format(why=reason))


def missing_key_error(protocol: str) -> ApiError:
    """Return the provider's error for a missing API key."""
    kind, message = _MISSING_KEY[protocol]
    return ApiError(kind=kind, message=message)


def model_not_found_error(protocol: str, model: str) -> ApiError:
    """Return the provider's error for an unknown model."""
    template = _MODEL_NOT_FOUND.get(protocol, "The model `{model}` does not exist or you do not have access to it.")
    code = "model_not_found" if protocol.startswith("openai") else None
    return ApiError(kind="not_found", message=template.format(model=model), code=code)


def unsupported_tools_error(protocol: str, model: str) -> ApiError:
    """Return the error of a server whose model has no tool calling: Ollama's, or else vLLM's."""
    message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    if protocol == "ollama":
        message = f"registry.ollama.ai/library/{model} does not support tools"
    return ApiError(kind="invalid_request", message=message)


def response_not_found_error(protocol: str, kind: str, id: str) -> ApiError:
    """Return the provider's error for an unknown stored response."""
    if protocol == "openai-responses" and kind == "response":
        message = f"Previous response with id '{id}' not found."
        code, param = "previous_response_not_found", "previous_response_id"
        return ApiError(kind="invalid_request", message=message, code=code, param=param)
    return ApiError(kind="not_found", message=f"{kind.capitalize()} with id '{id}' not found.")


# ---- signatures that must be sent back


def require_signatures(request: Request, protocol: str, key: SignatureKey) -> None:
    """Reject a history whose signatures are altered or foreign, or missing where the provider requires them."""
    match protocol:
        case "anthropic":
            _require_thinking_blocks(request, key)
        case "openai-responses":
            _require_reasoning_items(request, key)
        case "gemini":
            _require_signed_calls(request, key)
        case "gemini-interactions":
            _require_thought_signatures(request, key)
        case "openrouter":
            if any(not _is_authentic(part, key) for message in request.messages for part in message.parts):
                raise ProviderRejection(ApiError(kind="invalid_request", message="Provider returned error"))
        case _:
            pass


def _is_authentic(part: object, key: SignatureKey) -> bool:
    """Return whether a part has no signature, or a valid one."""
    if isinstance(part, Reasoning) and part.signature is not None:
        return key.is_valid(part.signature.data, visible_reasoning(part))
    if isinstance(part, ToolCall) and part.signature is not None:
        return key.is_valid(part.signature.data, part.name)
    return not isinstance(part, Text) or part.signature is None or key.is_valid(part.signature.data)


def _first_call_after_thinking(message: Message, key: SignatureKey) -> ToolCall | None:
    """Return the first call that followed thinking, or None; the simulator marks such calls in their ids."""
    calls = (part for part in message.parts if isinstance(part, ToolCall))
    return next((call for call in calls if call.id and key.thinking_nonce(call.id) is not None), None)


def _rejection(message: str, code: str | None = None) -> ProviderRejection:
    """Build the rejection of an invalid request, with this message."""
    return ProviderRejection(ApiError(kind="invalid_request", message=message, code=code))


def _require_thinking_blocks(request: Request, key: SignatureKey) -> None:
    """Check the thinking blocks as Anthropic does: valid signatures, and none missing in the current turn."""
    _require_valid_thinking(request, key)
    if not is_thinking_enabled("anthropic", request):
        return
    has_budget = request.thinking is not None and request.thinking.budget_tokens is not None
    start = current_turn_start(request.messages)
    for number, message in enumerate(request.messages[start:], start):
        has_thinking = any(isinstance(part, Reasoning) for part in message.parts)
        if not has_thinking and _first_call_after_thinking(message, key) is not None:
            index = next(index for index, part in enumerate(message.parts) if isinstance(part, ToolCall))
            path = f"messages.{number}.content.{index}"
            raise _rejection(f"{path}.type: {_THINKING_EXPECTED}" if has_budget else f"{path}: {_THINKING_MODIFIED}")


def _require_valid_thinking(request: Request, key: SignatureKey) -> None:
    """Reject thinking blocks without a valid signature."""
    for number, message in enumerate(request.messages):
        for index, part in enumerate(message.parts):
            if isinstance(part, Reasoning) and (part.signature is None or not _is_authentic(part, key)):
                field = "`data` in `redacted_thinking`" if part.hidden == "redacted" else "`signature` in `thinking`"
                raise _rejection(f"messages.{number}.content.{index}: Invalid {field} block")


def _require_reasoning_items(request: Request, key: SignatureKey) -> None:
    """Check the reasoning items as OpenAI does.

    An item with an id needs the reasoning item that preceded it; an item without an id is accepted as it is.
    """
    reasoning_ids: set[str | None] = set()
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Reasoning):
                reasoning_ids.add(message.id)
                if not _is_authentic(part, key):
                    error = f"The encrypted content for item {message.id} could not be verified. "
                    error += "Reason: Encrypted content could not be decrypted or parsed."
                    raise _rejection(error, "invalid_encrypted_content")
        call = _first_call_after_thinking(message, key)
        if call is not None and message.id is not None and None not in reasoning_ids:
            required_id = reasoning_item_id(key.thinking_nonce(call.id or "") or "")
            if required_id not in reasoning_ids:
                kind = "custom_tool_call" if call.shape == "freeform" else "function_call"
                error = f"Item '{message.id}' of type '{kind}' was provided without its required 'reasoning' item: "
                raise _rejection(f"{error}'{required_id}'.")


def _require_signed_calls(request: Request, key: SignatureKey) -> None:
    """Check the signatures of Gemini's calls. A missing one is already rejected by the codec's rules."""
    if not signs_calls(request.model or ""):
        return
    for message in request.messages[current_turn_start(request.messages) :]:
        if any(not _is_authentic(part, key) for part in message.parts):
            raise _rejection("Corrupted thought signature.")


def _require_thought_signatures(request: Request, key: SignatureKey) -> None:
    """Check the thought signatures as the Interactions API does."""
    if not signs_calls(request.model or ""):
        return
    start = current_turn_start(request.messages)
    has_signature = False
    for number, message in enumerate(request.messages[start:], start):
        if any(not _is_authentic(part, key) for part in message.parts):
            raise _rejection("Invalid thought signature.")
        has_signature = has_signature or any(
            isinstance(part, Reasoning) and part.signature is not None for part in message.parts
        )
        call = _first_call_after_thinking(message, key)
        if call is not None and not has_signature:
            raise _rejection(
                f"Function call `{call.name}` in the `{number + 1}.` content block is missing a `thought_signature`."
            )
        if message.role == "user":
            has_signature = False
