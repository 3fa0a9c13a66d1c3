"""What goes wrong, as errors that a client can be told: of an upstream they name it, and tell none of its secrets."""

from typing import Literal

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind, LossRefused, ToolwireError
from toolwire.canonical.node import Extras
from toolwire.journal.secrets import Redactor
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import TransportError

from .refusal import Refused
from .routing import NoModel, NoRoute

STATUS_KINDS: dict[int, ErrorKind] = {401: "authentication", 402: "billing", 403: "permission", 404: "not_found"}
_TEXTS = ("message", "code", "param", "raw", "request_id")


def transport_fault(provider: Provider, error: TransportError) -> ApiError:
    kind: Literal["timeout", "server"] = "timeout" if error.timed_out else "server"
    return ApiError(kind=kind, message=f"{provider.name}: {error}", status=504 if error.timed_out else 502)


def transport_refusal(provider: Provider, error: TransportError) -> Refused:
    return Refused(transport_fault(provider, error), attempt="unknown" if error.sent else "unprocessed")


def redact_error(error: ApiError, redactor: Redactor) -> ApiError:
    """Copy an upstream's error without the secrets that the gateway knows, whatever member of it they stand in."""
    texts = {name: redactor.text(text) for name in _TEXTS if (text := getattr(error, name)) is not None}
    return replace(error, **texts, extras=redact_extras(error.extras, redactor))


def redact_extras(extras: Extras | None, redactor: Redactor) -> Extras | None:
    if extras is None:
        return None
    return {
        family: {name: Raw(redactor.data(bytes(raw))) for name, raw in kept.items()} for family, kept in extras.items()
    }


def fault_of(provider: Provider, kind: ErrorKind, why: str, status: int = 502) -> ApiError:
    return ApiError(kind=kind, message=f"{provider.name} {why}", status=status)


def unreadable(provider: Provider, error: DecodeError) -> ApiError:
    return fault_of(provider, "server", f"gave an answer that can't be read: {error}")


def seconds(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None


def told(error: Exception) -> ApiError:
    """Whatever went wrong, as an error that a client can be told."""
    match error:
        case Refused():
            return error.error
        case DecodeError() | LossRefused() | NoModel():
            return ApiError(kind="invalid_request", message=str(error), status=400)
        case NoRoute():
            return ApiError(kind="not_found", message=str(error), status=404)
        case ToolwireError():
            return ApiError(kind="invalid_request", message=str(error), status=400)
        case _:
            return ApiError(kind="server", message="toolwire itself failed; its log says how", status=500)


def in_place_of_an_answer(error: ApiError) -> ApiError:
    """The first event of a stream: where its kind has no status of its own, the provider is at fault."""
    return replace(error, status=error.status or (502 if error.kind in ("server", "other") else None))
