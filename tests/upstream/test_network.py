"""Proxies, certificate authorities and client certificates, on real sockets."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.support.gateway.in_process import NO_TIMEOUT, run_async
from tests.support.servers.proxy import AUTHORITY, CLIENT_CERT, CLIENT_KEY, Proxy, serve_tls, server_context
from tests.support.servers.upstream import OK_RESPONSE, reply_with, serve_upstream
from toolwire.gateway.config import ConfigError, build_providers, configured_secrets, parse_config
from toolwire.gateway.providers.discovery import configured_providers
from toolwire.upstream.network import NetworkSettings, find_proxy, parse_proxy
from toolwire.upstream.provider import Origin
from toolwire.upstream.transport import Transport, TransportError, request_head

ANSWER = reply_with(OK_RESPONSE, OK_RESPONSE)


async def ask(transport: Transport, origin: Origin) -> bytes:
    head = request_head(origin, "/x", [])
    answer = await transport.send(origin, head, b"{}", read_timeout=NO_TIMEOUT, connect_timeout=NO_TIMEOUT)
    return await answer.read(100)


def test_request_goes_through_the_tunnel_of_a_proxy() -> None:
    async def work() -> None:
        proxy = Proxy()
        async with proxy.serve() as port, serve_upstream(ANSWER) as origin:
            network = NetworkSettings(proxy=f"http://user:p%40ss@127.0.0.1:{port}")
            through = Origin("http", "provider.invalid", origin.port, network)
            transport = Transport()
            assert [await ask(transport, through), await ask(transport, through)] == [b"ok", b"ok"]
            (head,) = proxy.heads  # the connection was reused
            assert head.startswith(f"CONNECT provider.invalid:{origin.port} HTTP/1.1\r\nhost: provider.invalid:")
            assert f"proxy-authorization: Basic {base64.b64encode(b'user:p@ss').decode()}\r\n" in head
            transport.close()

    run_async(work())


@pytest.mark.parametrize("run", [run_async, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("with_proxy", [False, True])
def test_server_with_a_certificate_of_an_own_authority(run: Callable[[Any], Any], *, with_proxy: bool) -> None:
    async def work() -> None:
        proxy, transport = Proxy(), Transport()
        async with proxy.serve() as proxy_port, serve_tls(ANSWER, server_context()) as port:
            address = f"http://127.0.0.1:{proxy_port}" if with_proxy else None
            trusted = Origin("https", "localhost", port, NetworkSettings(proxy=address, ca_file=str(AUTHORITY)))
            assert await ask(transport, trusted) == b"ok"
            with pytest.raises(TransportError, match=r"certificate is not trusted .* set ca_file") as caught:
                await ask(transport, Origin("https", "localhost", port, NetworkSettings(proxy=address)))
            assert not caught.value.sent
            assert len(proxy.heads) == (2 if with_proxy else 0)
        transport.close()

    run(work())


def test_server_that_wants_a_certificate_of_its_client() -> None:
    async def work() -> None:
        transport = Transport()
        async with serve_tls(ANSWER, server_context(requires_certificate=True)) as port:
            certified = NetworkSettings(
                ca_file=str(AUTHORITY), client_cert=str(CLIENT_CERT), client_key=str(CLIENT_KEY)
            )
            assert await ask(transport, Origin("https", "localhost", port, certified)) == b"ok"
            with pytest.raises(TransportError):
                await ask(transport, Origin("https", "localhost", port, NetworkSettings(ca_file=str(AUTHORITY))))
        transport.close()

    run_async(work())


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "the proxy answered '407 Proxy Authentication"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "the proxy sent no valid answer"),
        (b"HTTP/1.1 200 OK\r\n\r\nmore", "the proxy sent no valid answer"),
        (b"x" * 20_000, "the proxy sent no valid answer"),
        (b"", "the proxy sent no valid answer"),
    ],
)
def test_refusal_of_a_proxy_is_an_error_without_its_password(answer: bytes, problem: str) -> None:
    async def work() -> None:
        proxy, transport = _RawProxy(answer), Transport()
        async with proxy.serve() as port:
            network = NetworkSettings(proxy=f"http://user:secret@127.0.0.1:{port}")
            with pytest.raises(TransportError, match=problem) as caught:
                await ask(transport, Origin("http", "provider.invalid", 80, network))
            assert f"can't connect to provider.invalid through the proxy 127.0.0.1:{port}: " in str(caught.value)
            assert "secret" not in str(caught.value)
            assert not caught.value.sent

    run_async(work())


class _RawProxy(Proxy):
    """Sends the same bytes to all."""

    async def _handle(self, reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        writer.write_eof()


# ---- configuration


@pytest.mark.parametrize(
    ("environment", "host", "expected"),
    [
        ({}, "api.example.org", None),
        ({"HTTPS_PROXY": "http://p:1"}, "api.example.org", "http://p:1"),
        ({"https_proxy": "http://q:1", "HTTPS_PROXY": "http://p:1"}, "api.example.org", "http://q:1"),
        ({"HTTP_PROXY": "http://p:1"}, "api.example.org", None),
        ({"ALL_PROXY": "http://p:1"}, "api.example.org", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.org"}, "api.example.org", None),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "x, .example.org:443"}, "api.example.org", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*.example.org"}, "api.example.org", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "ample.org"}, "api.example.org", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "api.example.org", None),
    ],
)
def test_proxy_of_the_environment(environment: dict[str, str], host: str, expected: str | None) -> None:
    assert find_proxy("https", host, environment) == expected


def test_setting_of_a_provider_wins_over_the_environment() -> None:
    tables = {"": "plain", 'proxy = "direct"': "direct", 'proxy = "http://own:3128"': "own"}
    text = "".join(
        f'[providers.{name}]\nprotocol = "anthropic"\nbase_url = "https://{name}.example.org"\n{setting}\n'
        for setting, name in tables.items()
    )
    text += '[providers.local]\nprotocol = "anthropic"\nbase_url = "http://127.0.0.1:9"\n'
    environment = {"HTTPS_PROXY": "http://common:3128", "HTTP_PROXY": "http://common:3128"}
    providers = configured_providers(parse_config(text, {}), environment)
    assert {name: provider.origin.network.proxy for name, provider in providers.items()} == {
        "plain": "http://common:3128",
        "direct": None,
        "own": "http://own:3128",
        "local": None,
    }


def test_password_of_a_proxy_is_a_secret() -> None:
    text = (
        '[providers.p]\nprotocol = "anthropic"\nbase_url = "https://a.org"\nproxy = "http://u:pass-word-1@own:3128"\n'
    )
    config = parse_config(text, {})
    assert "pass-word-1" in set(configured_secrets(config, build_providers(config).values()))


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ('proxy = "socks5://h:1"', "a proxy needs a URL with http://, not socks5://"),
        ('proxy = "http://"', "the URL of the proxy has no valid host"),
        ('ca_file = "/nonexistent.pem"', "/nonexistent.pem: No such file or directory"),
        ('client_key = "k.pem"', "needs client_cert"),
    ],
)
def test_invalid_settings_are_configuration_errors(setting: str, problem: str) -> None:
    text = f'[providers.p]\nprotocol = "anthropic"\nbase_url = "https://a.org"\n{setting}\n'
    with pytest.raises(ConfigError) as caught:
        parse_config(text, {})
    assert problem in str(caught.value)


def test_file_without_certificates_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    text = f'[providers.p]\nprotocol = "anthropic"\nbase_url = "https://a.org"\nca_file = "{tmp_path / "empty.pem"}"\n'
    with pytest.raises(ConfigError) as caught:
        parse_config(text, {})
    assert "empty.pem: " in str(caught.value)


def test_proxy_without_a_scheme_or_port() -> None:
    assert (parse_proxy("proxy.example.org").host, parse_proxy("proxy.example.org").port) == ("proxy.example.org", 80)
