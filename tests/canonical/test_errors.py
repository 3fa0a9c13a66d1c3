"""Exceptions: their messages and fields, and that they survive pickling."""

import copy
import pickle

import pytest

from toolwire.canonical.errors import DecodeError, Loss, LossyTranslationError, ToolwireError

LOSS = Loss(
    severity="warning",
    direction="request",
    kind="dropped",
    path="/tools/0",
    reason="there is no such tool",
    constraint=True,
)
OTHER = Loss(severity="warning", direction="request", kind="dropped", path="", reason="nothing fits")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DecodeError("acme", "/model", "a string", "1"), "acme: /model: expected a string, got 1"),
        (DecodeError("acme", "", "an object", "an array"), "acme: the body: expected an object, got an array"),
        (LossyTranslationError([LOSS], "acme"), "cannot translate to acme: /tools/0: there is no such tool"),
        (
            LossyTranslationError([OTHER, LOSS, LOSS], "acme"),
            "cannot translate to acme: the body: nothing fits (and 2 more)",
        ),
    ],
)
def test_error_messages(error: ToolwireError, message: str) -> None:
    assert str(error) == message


@pytest.mark.parametrize(
    "error", [DecodeError("acme", "/model", "a string", "1"), LossyTranslationError([LOSS, OTHER], "acme")]
)
def test_errors_survive_copy_and_pickle(error: ToolwireError) -> None:
    for clone in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(clone) is type(error)
        assert str(clone) == str(error)
        assert vars(clone) == vars(error)


def test_errors_share_a_base_class_and_keep_their_fields() -> None:
    decode, refused = DecodeError("acme", "/model", "a string", "1"), LossyTranslationError([LOSS], "acme")
    assert isinstance(decode, ToolwireError)
    assert isinstance(refused, ToolwireError)
    assert not issubclass(DecodeError, LossyTranslationError)
    assert not issubclass(LossyTranslationError, DecodeError)
    assert (decode.protocol, decode.path, decode.expected, decode.got) == ("acme", "/model", "a string", "1")
    assert (refused.losses, refused.target) == ([LOSS], "acme")
