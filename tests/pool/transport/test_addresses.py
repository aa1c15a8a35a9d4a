"""Addresses as text."""

from __future__ import annotations

import pytest

from fray.errors import AddressError
from fray.runtime.pool.transport.addresses import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unix:/run/pool/head.sock", Address(path="/run/pool/head.sock")),
        ("pod:/run/pool/head.sock", Address(path="/run/pool/head.sock", of_pod=True)),
        ("tcp:127.0.0.1:80", Address(host="127.0.0.1", port=80)),
        ("tcp:train-0-0.train:0", Address(host="train-0-0.train", port=0)),
        ("tcp:[fd00::1]:65535", Address(host="fd00::1", port=65535)),
    ],
)
def test_text_and_address_are_the_same(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text
    assert address.is_unix == text.startswith(("unix:", "pod:"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/run/x",
        "unix:",
        "unix:relative",
        "unix:/" + "x" * 107,
        "unix:/a\0b",
        "pod:relative",
        "pod:/" + "x" * 107,
        "http://host:80",
        "tcp:host",
        "tcp::80",
        "tcp:host:",
        "tcp:host:-1",
        "tcp:host:65536",
        "tcp:host:8o",
        "tcp:host:\u0661",
    ],
)
def test_what_is_no_address_is_a_typed_error(text: str) -> None:
    with pytest.raises(AddressError) as refused:
        Address.parse(text)
    assert refused.value.address == text
