"""What a queue's client and server say to each other, and how each proves that it has the token.

The token itself never travels. A request carries an HMAC over all that matters of it and over a number
used once; an answer carries one over the request's and over itself. So neither side acts on bytes of
anybody without the token, and an answer can't be taken for that of another request. It hides nothing:
for secrets, put TLS in front of the server. Nothing here opens a connection.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from enum import StrEnum

from fray.errors.queue import QueueArgumentError

__all__ = [
    "ANSWER_HEADER",
    "DIGEST_HEADER",
    "MAX_ITEM_BYTES",
    "NONCE_HEADER",
    "SIGNATURE_HEADER",
    "Verb",
    "checked_name",
    "digest_of",
    "is_identifier",
    "sign_answer",
    "sign_request",
    "signatures_match",
]

NONCE_HEADER = "Fray-Nonce"
DIGEST_HEADER = "Fray-Digest"
SIGNATURE_HEADER = "Fray-Signature"
ANSWER_HEADER = "Fray-Answer-Signature"

MAX_ITEM_BYTES = 64 * 2**20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_IDENTIFIER = re.compile(r"[0-9a-f]{32}")


class Verb(StrEnum):
    """What a client can ask of a queue: POST /queues/{name}/{verb}.

    `request` in the query names what is asked: a repetition has the same and changes nothing twice.
    `lease` names a lease (the client chooses it when it pops), `seconds` its length.
    """

    PUSH = "push"
    PEEK = "peek"
    POP = "pop"
    RENEW = "renew"
    DONE = "done"
    RELEASE = "release"
    COUNT = "count"


def checked_name(name: str) -> str:
    """Return a queue's name when it can be one.

    Raises:
        QueueArgumentError: it can't stand in a path, or is too long.
    """
    if not _NAME.fullmatch(name):
        raise QueueArgumentError("name", f"must be 1 to 63 letters, digits, `.`, `_` or `-`, not {name!r}")
    return name


def is_identifier(text: str) -> bool:
    """Whether this can name a request or a lease."""
    return _IDENTIFIER.fullmatch(text) is not None


def digest_of(body: bytes) -> str:
    """The digest of a body as it stands in a header."""
    return hashlib.sha256(body).hexdigest()


def sign_request(token: str, *, path: str, nonce: str, length: int, digest: str) -> str:
    """The proof that a request comes from somebody with the token; `path` includes the query."""
    return _sign(token, "request", path, nonce, str(length), digest)


def sign_answer(token: str, *, request: str, status: int, body: bytes) -> str:
    """The proof that an answer to the request with this signature comes from somebody with the token."""
    return _sign(token, "answer", request, str(status), digest_of(body))


def signatures_match(ours: str, theirs: str) -> bool:
    """Compare in a time that doesn't tell how much of them agrees."""
    # As bytes: the function refuses text with other than ASCII characters, which an enemy may send.
    return hmac.compare_digest(ours.encode(), theirs.encode("utf-8", "surrogateescape"))


def _sign(token: str, *parts: str) -> str:
    # Each part with its length, so that no two lists of parts read the same.
    message = b"".join(b"%d:%s" % (len(part), part) for part in (_bytes(part) for part in parts))
    return hmac.new(_bytes(token), message, hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
