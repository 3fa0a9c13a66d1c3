"""Authentication: keys, hosts and origins."""

import pytest

from toolwire.gateway.server.auth import ANONYMOUS, Authenticator
from toolwire.upstream.provider import is_loopback

KEYS = ("first-key-1", "second-key-2")


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({b"x-api-key": b"second-key-2"}, b""),
        ({b"authorization": b"Bearer second-key-2"}, b""),
        ({b"authorization": b"bearer second-key-2"}, b""),
        ({b"x-goog-api-key": b"second-key-2"}, b""),
        ({b"api-key": b"second-key-2"}, b""),
        ({}, b"alt=sse&key=second-key-2"),
    ],
)
def test_key_is_accepted_in_any_protocols_header(headers: dict[bytes, bytes], query: bytes) -> None:
    gate = Authenticator(KEYS)
    caller = gate.authenticate(headers, query)
    assert caller is not None
    assert caller == gate.authenticate({b"x-api-key": b"second-key-2"}, b"")
    assert caller != gate.authenticate({b"x-api-key": b"first-key-1"}, b"")
    assert "second" not in caller.tenant


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"x-api-key": b""},
        {b"x-api-key": b"second-key-"},
        {b"x-api-key": b"second-key-22"},
        {b"authorization": b"Basic second-key-2"},
        {b"authorization": b"second-key-2"},
        {b"x-api-key": b"' OR 1=1 --"},
        {b"x-api-key": "sécond".encode()},
        {b"cookie": b"second-key-2"},
    ],
)
def test_other_values_are_no_key(headers: dict[bytes, bytes]) -> None:
    assert Authenticator(KEYS).authenticate(headers, b"") is None


def test_without_keys_local_requests_are_admitted() -> None:
    assert Authenticator(()).authenticate({}, b"") == ANONYMOUS


@pytest.mark.parametrize("host", [b"localhost:4000", b"127.0.0.1:4000", b"[::1]:4000", b"localhost", b"LOCALHOST:1"])
def test_loopback_server_accepts_local_host_names(host: bytes) -> None:
    assert Authenticator(()).rejection_reason({b"host": host}) is None


@pytest.mark.parametrize(
    "host", [b"localhost/x", b"a@localhost", b"x/v1/messages?", b"localhost#", b"[::1", b"a b", b":80"]
)
def test_invalid_host_is_rejected_with_or_without_keys(host: bytes) -> None:
    assert Authenticator(()).rejection_reason({b"host": host}) is not None
    assert Authenticator(KEYS).rejection_reason({b"host": host}) is not None


@pytest.mark.parametrize("host", [b"", b"evil.example", b"evil.example:4000", b"127.0.0.1.evil.example"])
def test_foreign_host_name_is_rejected(host: bytes) -> None:
    assert Authenticator(()).rejection_reason({b"host": host}) is not None
    assert Authenticator(KEYS).rejection_reason({b"host": host}) is None  # a key is required there


def test_foreign_origin_is_rejected_with_or_without_keys() -> None:
    local = {b"host": b"localhost", b"origin": b"http://localhost:3000"}
    foreign = {b"host": b"localhost", b"origin": b"https://evil.example"}
    for gate in (Authenticator(()), Authenticator(KEYS)):
        assert gate.rejection_reason(local) is None
        assert gate.rejection_reason(foreign) is not None
    assert Authenticator((), origins=("https://evil.example",)).rejection_reason(foreign) is None
    assert Authenticator((), hosts=("box.example",)).rejection_reason({b"host": b"box.example:4000"}) is None


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("box", False)],
)
def test_loopback_addresses_are_recognized(host: str, local: bool) -> None:
    assert is_loopback(host) is local
