"""What lies between us and a server: addresses, proxies, certificates, redirects."""

import asyncio
import importlib.util
import socket
from pathlib import Path

import pytest

from bareagent import errors
from bareagent.entries import Retrying
from bareagent.messages import text_of, user
from bareagent.provider import failures
from bareagent.provider.client import call_failures
from bareagent.seams import Request
from tests.heard import Ear, provider_for
from tests.server import Server

AIM = failures.Aim("anthropic", "http://x.test", "some-model", "ANTHROPIC_API_KEY", "sk-secret-key-123")


def request() -> Request:
    return Request(messages=[user("look")], max_tokens=4096)


async def test_nobody_there_is_told_with_the_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    provider = await provider_for(
        {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}, model="claude-haiku-4-5"
    )
    ear = Ear()
    with pytest.raises(errors.ServerUnreachable) as caught:
        await provider.reply(request(), ear)
    await provider.aclose()
    assert url in str(caught.value)
    assert caught.value.hint
    assert len(ear.of(Retrying)) == 2


async def test_a_server_without_tls_is_told() -> None:
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    plain = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}"
    provider = await provider_for(
        {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}, model="claude-haiku-4-5"
    )
    with pytest.raises(errors.ServerUnreachable, match="TLS") as caught:
        await provider.reply(request(), Ear())
    await provider.aclose()
    plain.close()
    assert not caught.value.is_retryable
    assert "SSL_CERT_FILE" in caught.value.hint


PROXIES = {
    "http://user:secret@127.0.0.1:9": ("The proxy 127.0.0.1:9 (HTTPS_PROXY), on the way to", "NO_PROXY", 2),
    "http://127.0.0.1:{refusing}": ("(HTTPS_PROXY) refused: 407", "NO_PROXY", 0),
    "ftp://127.0.0.1:9": ("The proxy 127.0.0.1:9 (HTTPS_PROXY) is no address of a proxy", "http://", 0),
    "::": ("The proxy :: (HTTPS_PROXY) is no address of a proxy", "http://", 0),
    "http://[::1": ("The proxy [::1 (HTTPS_PROXY) is no address of a proxy", "http://", 0),
    "http://127.0.0.1:99999": ("(HTTPS_PROXY) is no address of a proxy", "http://", 0),
    "socks5://127.0.0.1:9": ("is a SOCKS proxy", "bareagent[socks]", 0),
}


@pytest.mark.parametrize("proxy", PROXIES)
async def test_a_proxy_that_fails_is_named_with_its_variable(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    if proxy.startswith("socks") and importlib.util.find_spec("socksio"):
        pytest.skip("needs that socksio is not installed")
    refusing = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = refusing.sockets[0].getsockname()[1]
    monkeypatch.setenv("HTTPS_PROXY", proxy.format(refusing=port))
    env = {"ANTHROPIC_BASE_URL": "https://models.test", "ANTHROPIC_API_KEY": "k"}
    provider = await provider_for(env, model="claude-haiku-4-5")
    ear = Ear()
    with pytest.raises(errors.ServerUnreachable) as caught:
        await provider.reply(request(), ear)
    await provider.aclose()
    refusing.close()
    words, hint, n_retries = PROXIES[proxy]
    assert words in str(caught.value)
    assert hint in caught.value.hint
    assert "secret" not in str(caught.value)
    assert len(ear.of(Retrying)) == n_retries


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "nonsense"])
async def test_no_proxy_stands_before_the_loopback(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy)
    async with Server(["Here."]) as server:
        env = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k"}
        provider = await provider_for(env, model="claude-haiku-4-5")
        reply = await provider.reply(request(), Ear())
        await provider.aclose()
    assert text_of(reply.message) == "Here."


async def test_a_key_is_not_carried_to_another_address() -> None:
    async with Server(["x"]) as elsewhere:

        async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            place = f"location: {elsewhere.url}/v1/messages\r\ncontent-length: 0\r\n"
            writer.write(f"HTTP/1.1 307 Temporary Redirect\r\n{place}\r\n".encode())
            writer.close()

        moved = await asyncio.start_server(redirect, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{moved.sockets[0].getsockname()[1]}"
        env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}
        provider = await provider_for(env, model="claude-haiku-4-5")
        with pytest.raises(errors.ServerUnreachable, match="307"):
            await provider.reply(request(), Ear())
        await provider.aclose()
        moved.close()
        assert not elsewhere.all


@pytest.mark.parametrize(
    "url",
    ["ftp://x.test", "nonsense", "http://", "http://[::1", "http://127.0.0.1:99999", "http://127.0.0.1:x"],
)
async def test_an_address_that_is_none_is_told(url: str) -> None:
    env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}
    provider = await provider_for(env, model="claude-haiku-4-5")
    ear = Ear()
    with pytest.raises(errors.ServerUnreachable) as caught:
        await provider.reply(request(), ear)
    await provider.aclose()
    assert f"{url.rstrip('/')} cannot be used" in str(caught.value)
    assert "TaskGroup" not in str(caught.value)
    assert "base URL" in caught.value.hint
    assert not ear.of(Retrying)


def test_what_hides_in_a_group_is_told() -> None:
    group = ExceptionGroup("unhandled errors in a TaskGroup", [OSError("the cable is cut")])
    ours = failures.explain(group, AIM)
    assert isinstance(ours, errors.ServerUnreachable)
    assert "the cable is cut" in str(ours)
    assert isinstance(group, call_failures())


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_certificates_that_cannot_be_read_are_told_at_once(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "some.pem"
    if content:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    env = {"ANTHROPIC_BASE_URL": "https://127.0.0.1:1", "ANTHROPIC_API_KEY": "k"}
    provider = await provider_for(env, model="claude-haiku-4-5")
    ear = Ear()
    with pytest.raises(errors.ServerUnreachable, match="SSL_CERT_FILE") as caught:
        await provider.reply(request(), ear)
    await provider.aclose()
    assert "SSL_CERT_FILE" in caught.value.hint
    assert not ear.of(Retrying)
