"""Fields that a wire type does not declare, kept as extras."""

import msgspec
from msgspec import Raw

from toolwire.codec.wire.extras import extras_and_wire_form
from toolwire.protocols.openai_chat.wire import ResponseShape


def response(fingerprint: object) -> ResponseShape:
    shape = msgspec.json.decode(b'{"id":"1","choices":[]}', type=ResponseShape)
    return msgspec.structs.replace(shape, system_fingerprint=fingerprint)


def extras_of(shape: ResponseShape) -> dict[str, Raw]:
    return extras_and_wire_form(shape, "openai")[0]


class Interrupted:
    """A value whose comparison decodes another response, as a thread switch may at any time."""

    def __eq__(self, other: object) -> bool:
        if other != Raw(b'"fp_mine"'):
            return False
        extras_of(response(Raw(b'"fp_other"')))
        return True

    __hash__ = None  # type: ignore[assignment]


def test_thread_switch_does_not_mix_up_extras() -> None:
    extras_of(response(Raw(b'"fp_mine"')))
    assert extras_of(response(Interrupted())) == {"system_fingerprint": Raw(b'"fp_mine"')}
