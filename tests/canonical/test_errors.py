"""Our own exceptions: what they say, what they hold, and that they survive a trip to another process."""

import copy
import pickle

import pytest

from toolwire.canonical.errors import DecodeError, LossyTranslationError, ToolwireError
from toolwire.canonical.loss import Loss

LOSS = Loss(kind="dropped", path="/tools/0", reason="there is no such tool", constraint=True)
OTHER = Loss(kind="dropped", path="", reason="nothing fits")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DecodeError("acme", "/model", "a string", "1"), "acme: /model: expected a string, got 1"),
        (DecodeError("acme", "", "an object", "an array"), "acme: the body: expected an object, got an array"),
        (LossyTranslationError([LOSS], "acme"), "cannot translate /tools/0 to acme: there is no such tool"),
        (LossyTranslationError([OTHER, LOSS, LOSS], "acme"), "cannot translate the body to acme: nothing fits (and 2 more)"),
    ],
)
def test_messages(error: ToolwireError, said: str) -> None:
    assert str(error) == said


@pytest.mark.parametrize(
    "error", [DecodeError("acme", "/model", "a string", "1"), LossyTranslationError([LOSS, OTHER], "acme")]
)
def test_a_copy_is_the_same(error: ToolwireError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_whose_fault_it_is_can_be_caught_apart_or_together() -> None:
    decode, refused = DecodeError("acme", "/model", "a string", "1"), LossyTranslationError([LOSS], "acme")
    assert isinstance(decode, ToolwireError)
    assert isinstance(refused, ToolwireError)
    assert not issubclass(DecodeError, LossyTranslationError)
    assert not issubclass(LossyTranslationError, DecodeError)
    assert (decode.protocol, decode.path, decode.expected, decode.got) == ("acme", "/model", "a string", "1")
    assert (refused.losses, refused.target) == ([LOSS], "acme")
