"""Signatures: a snapshot that was changed, made elsewhere, or made for another call is rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.runtime.sandbox.code.program import InvalidSnapshot, sign_snapshot, verify_snapshot

KEY = b"k" * 32


@given(st.binary(max_size=200), st.text(max_size=20))
def test_signed_snapshot_is_verified(snapshot: bytes, purpose: str) -> None:
    assert verify_snapshot(sign_snapshot(snapshot, KEY, purpose), KEY, purpose) == snapshot


@given(st.binary(max_size=60), st.data())
def test_changed_snapshot_is_rejected(snapshot: bytes, data: st.DataObject) -> None:
    signed = bytearray(sign_snapshot(snapshot, KEY, "run/1"))
    index = data.draw(st.integers(0, len(signed) - 1))
    signed[index] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidSnapshot):
        verify_snapshot(bytes(signed), KEY, "run/1")


@pytest.mark.parametrize(("key", "purpose"), [(b"other" * 8, "run/1"), (KEY, "run/2")])
def test_snapshot_of_another_key_or_call_is_rejected(key: bytes, purpose: str) -> None:
    with pytest.raises(InvalidSnapshot):
        verify_snapshot(sign_snapshot(b"snapshot", KEY, "run/1"), key, purpose)


@given(st.binary(max_size=100))
def test_unsigned_snapshot_is_rejected(data: bytes) -> None:
    with pytest.raises(InvalidSnapshot):
        verify_snapshot(data, KEY, "run/1")
