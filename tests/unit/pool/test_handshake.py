"""The handshake without sockets: who holds the key gets in, and everybody else is refused by reason."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.errors import HandshakeError
from fray.runtime.pool.transport.handshake import MESSAGE_SIZE, Handshake, Role, refusal

KEY = b"k" * 32
OTHER_KEY = b"o" * 32


def listener(nonce: bytes = b"L" * 32, key: bytes = KEY) -> Handshake:
    return Handshake(key, Role.LISTENER, nonce)


def dialler(nonce: bytes = b"D" * 32, key: bytes = KEY) -> Handshake:
    return Handshake(key, Role.DIALLER, nonce)


def proof_for(challenge: bytes, **made_with: bytes) -> bytes:
    return dialler(**made_with).feed(challenge)


def reason_of(side: Handshake, data: bytes) -> str:
    with pytest.raises(HandshakeError) as refused:
        side.feed(data)
    assert not side.done
    return refused.value.reason


@pytest.mark.parametrize("size", [1, 10, MESSAGE_SIZE])
def test_both_sides_are_done_however_the_bytes_are_cut(size: int) -> None:
    one, other = listener(), dialler()

    def pass_on(data: bytes, to: Handshake) -> bytes:
        return b"".join(to.feed(data[start : start + size]) for start in range(0, len(data), size))

    proof = pass_on(one.start(), other)
    assert not other.done
    accept = pass_on(proof, one)
    assert one.done
    assert pass_on(accept, other) == b""
    assert other.done
    one.close()
    other.close()


def test_a_stranger_gets_no_proof_from_a_listener() -> None:
    challenge = listener().start()
    assert challenge[-32:] == bytes(32)
    assert reason_of(listener(), proof_for(challenge, key=OTHER_KEY)) == "wrong_key"


def test_a_listener_without_the_key_is_refused() -> None:
    side = dialler()
    assert side.feed(listener().start())
    forged = listener(key=OTHER_KEY).feed(proof_for(listener().start(), key=OTHER_KEY))
    assert reason_of(side, forged) == "wrong_key"


def test_a_recorded_proof_is_refused_as_replayed() -> None:
    recorded = proof_for(listener(nonce=b"1" * 32).start())
    assert reason_of(listener(nonce=b"2" * 32), recorded) == "replayed"


def test_a_recorded_answer_of_a_listener_is_refused_as_replayed() -> None:
    old = listener()
    recorded = old.feed(proof_for(old.start(), nonce=b"1" * 32))
    side = dialler(nonce=b"2" * 32)
    side.feed(listener().start())
    assert reason_of(side, recorded) == "replayed"


def test_a_message_is_not_accepted_from_the_side_that_it_was_sent_to() -> None:
    side = listener()
    assert reason_of(side, listener().start()) == "malformed"
    proving = dialler()
    proof = proving.feed(listener().start())
    assert reason_of(proving, proof) == "malformed"


def test_a_proof_with_its_role_and_kind_changed_is_not_an_accept() -> None:
    side = dialler()
    proof = bytearray(side.feed(listener().start()))
    proof[6], proof[7] = 3, Role.LISTENER
    assert reason_of(side, bytes(proof)) == "wrong_key"


def test_a_challenge_in_the_name_of_a_dialler_gets_no_proof() -> None:
    challenge = bytearray(listener().start())
    challenge[7] = Role.DIALLER
    assert reason_of(dialler(), bytes(challenge)) == "malformed"


def test_another_version_is_refused() -> None:
    proof = bytearray(proof_for(listener().start()))
    proof[5] = 2
    assert reason_of(listener(), bytes(proof)) == "malformed"


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"\x80\x05\x95", b"F", b"FRYX"])
def test_another_protocol_is_refused_at_its_first_wrong_byte(data: bytes) -> None:
    side = listener()
    if b"FRYH".startswith(data):
        assert side.feed(data) == b""
    else:
        assert reason_of(side, data) == "malformed"


def test_who_sends_more_than_a_proof_before_he_is_accepted_is_refused() -> None:
    side = listener()
    assert reason_of(side, proof_for(side.start()) + b"x") == "oversized"


def test_frames_may_follow_the_accept() -> None:
    one, other = listener(), dialler()
    accept = one.feed(other.feed(one.start()))
    other.feed(accept + b"frames")
    assert other.leftover() == b"frames"
    assert one.leftover() == b""


@pytest.mark.parametrize("sent", [0, 1, MESSAGE_SIZE - 1])
def test_an_end_within_the_handshake_is_truncation(sent: int) -> None:
    side = listener()
    side.feed(proof_for(side.start())[:sent])
    with pytest.raises(HandshakeError) as refused:
        side.close()
    assert refused.value.reason == "truncated"


@pytest.mark.parametrize("reason", ["wrong_key", "wrong_user", "replayed", "timeout"])
def test_a_dialler_hears_why_it_was_refused(reason: str) -> None:
    side = dialler()
    side.feed(listener().start())
    assert reason_of(side, refusal(HandshakeError(reason, "test"))) == reason  # type: ignore[arg-type]


def test_an_unknown_reason_is_malformed() -> None:
    message = bytearray(refusal(HandshakeError("timeout", "test")))
    message[8] = 200
    assert reason_of(dialler(), bytes(message)) == "malformed"


@pytest.mark.parametrize(("secret", "nonce"), [(b"short", b"n" * 32), (KEY, b"short")])
def test_short_secrets_and_nonces_are_a_mistake_of_the_caller(secret: bytes, nonce: bytes) -> None:
    with pytest.raises(ValueError, match="32"):
        Handshake(secret, Role.LISTENER, nonce)


@given(st.integers(0, MESSAGE_SIZE - 1), st.integers(1, 255))
def test_no_bit_of_a_proof_may_change(place: int, change: int) -> None:
    side = listener()
    proof = bytearray(proof_for(side.start()))
    proof[place] ^= change
    reason_of(side, bytes(proof))


@given(st.binary(max_size=3 * MESSAGE_SIZE))
def test_random_bytes_never_open_the_door(noise: bytes) -> None:
    for side in (listener(), dialler()):
        with contextlib.suppress(HandshakeError):
            side.feed(struct.pack("!4sH", b"FRYH", 1) + noise)
        assert not side.done
