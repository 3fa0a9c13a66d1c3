"""The addresses, names and schemes that a browser may open."""

import ipaddress

import pytest

from toolwire.runtime.tools.browser.network_policy import NetworkPolicy, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "fe80::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
    ],
)
def test_private_addresses(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8"]
)
def test_public_addresses(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "data:text/html,x",
        "javascript:alert(1)",
        "chrome://settings",
        "view-source:http://example.com",
        "about:blank",
        "blob:http://example.com/1",
        "ftp://example.com",
        "ws://example.com",
        "//example.com",
        "http://",
        "http://[",
        "http://example.com:99999",
        "",
    ],
)
def test_only_http_and_https_urls_are_opened(url: str) -> None:
    assert NetworkPolicy().navigation_refusal(url) is not None
    assert NetworkPolicy().navigation_refusal("http://example.com") is None


@pytest.mark.parametrize(
    ("entry", "opened", "refused"),
    [
        ("example.com", "https://example.com/x", "https://www.example.com"),
        ("*.example.com", "https://www.example.com", "https://example.com"),
        ("*.example.com", "https://WWW.Example.com.:443/", "https://example.com.evil.test"),
        ("example.com:8443", "https://example.com:8443", "https://example.com"),
        ("example.com", "https://me@example.com", "https://example.com@evil.test"),
        ("bücher.example", "https://xn--bcher-kva.example", "https://bucher.example"),
        ("127.0.0.1:80", "http://127.0.0.1/", "http://127.0.0.1:81/"),
        ("[::1]:80", "http://[::1]/", "http://[::1]:81/"),
        ("::1", "http://[0:0::1]:81/", "http://127.0.0.1/"),
        ("*", "http://example.com", "http://127.0.0.1/"),
        ("*", "http://example.com", "http://[::ffff:127.0.0.1]/"),
    ],
)
def test_entry_allows_exactly_what_it_names(entry: str, opened: str, refused: str) -> None:
    policy = NetworkPolicy(hosts=(entry,))
    assert policy.navigation_refusal(opened) is None
    assert policy.navigation_refusal(refused) is not None


@pytest.mark.parametrize("entry", ["", "http://example.com", "example.com/path", "me@example.com", "example.com:http"])
def test_invalid_entry_is_an_error(entry: str) -> None:
    with pytest.raises(ValueError, match="invalid host"):
        NetworkPolicy(hosts=(entry,))


def allows_address(policy: NetworkPolicy, host: str, address: str) -> bool:
    return policy.address_refusal(host, 80, ipaddress.ip_address(address)) is None


def test_host_name_does_not_allow_a_private_address() -> None:
    policy = NetworkPolicy(hosts=("example.com", "*"))
    assert allows_address(policy, "example.com", "93.184.216.34")
    assert not allows_address(policy, "example.com", "127.0.0.1")
    assert not allows_address(policy, "example.com", "169.254.169.254")


def test_private_host_name_allows_a_private_address() -> None:
    policy = NetworkPolicy(hosts=("*",), private_hosts=("intranet.example", "*.corp.example"))
    assert allows_address(policy, "intranet.example", "10.0.0.5")
    assert allows_address(policy, "wiki.corp.example", "10.0.0.6")
    assert not allows_address(policy, "other.example", "10.0.0.5")


def test_localhost_must_be_loopback() -> None:
    policy = NetworkPolicy(hosts=("localhost",))
    assert allows_address(policy, "localhost", "127.0.0.1")
    assert allows_address(policy, "LOCALHOST.", "::1")
    assert not allows_address(policy, "localhost", "10.0.0.1")
    assert not allows_address(NetworkPolicy(hosts=("*",)), "localhost", "127.0.0.1")


def test_resources_load_from_page_and_resource_hosts() -> None:
    policy = NetworkPolicy(hosts=("example.com",), resource_hosts=("cdn.example.net",))
    assert policy.request_refusal("example.com", 443) is None
    assert policy.request_refusal("cdn.example.net", 443) is None
    assert policy.request_refusal("evil.test", 443) is not None
    assert policy.navigation_refusal("https://cdn.example.net") is not None
