"""Credentials in texts that people write, mostly URLs: whether there are any, and the texts without them.

What is shown, logged or written where others can read it goes through here, so that all of it is judged by
the same rules. It errs towards hiding. Values of whole variables are judged in `fray.types.environment`.
"""

from __future__ import annotations

import re

__all__ = ["holds_credentials", "holds_token", "is_secret_name", "redacted"]

HIDDEN = "***"
_WORDS = frozenset(
    {"apikey", "auth", "bearer", "credential", "credentials", "creds", "key", "pass", "passphrase"}
    | {"passwd", "password", "pat", "pwd", "secret", "secrets", "sig", "signature", "token"}
)
_SCHEME = r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30})://"
_PASSWORD = re.compile(_SCHEME + r"(?P<user>[^/?#\s:@\[]*:(?!\d+(?:[/?#\s]|$)|\$\{\w+\}@)\S*)@")
"""A colon that begins no port, then anything up to the last @: passwords are written with / and @ in them."""
_REFERENCE = re.compile(r"(?:[^:@]*:)?\$\{\w+\}")
"""A variable's name in the place of a secret, as in requirements files."""
_USER = re.compile(_SCHEME + r"(?P<user>[^/?#\s]*)@")
_PARAMETER = re.compile(r"(?<=[?&;])([A-Za-z0-9_.-]+)=")
"""Of a query (`?sig=...`), or of a connection string (`;AccountKey=...`)."""
_VALUE = re.compile(r"[^&;#\s]*")
_TOKEN = re.compile(
    r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|eyJ[\w-]+\.)[\w.-]{8,}"
    r"|\b(?i:bearer|basic)\s+\S{8,}|-----BEGIN [A-Z ]*PRIVATE KEY|\"private_key\"\s*:"
)
"""How tokens begin that say what they are: of GitHub, GitLab, Hugging Face, OpenAI, Slack, AWS and Google.

And JSON Web Tokens, headers of HTTP, keys of SSH and TLS, and key files of Google's service accounts.
"""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def redacted(text: str) -> str:
    """Return a text fit to be shown: with `***` for the credentials of URLs and connection strings in it.

    A user's name alone stays, since it opens nothing (`abfs://container@account`), but for HTTP, where
    tokens are given so. References to variables (`https://${TOKEN}@host`) stay too.
    """
    text = _PASSWORD.sub(rf"\g<scheme>://{HIDDEN}@", text)
    text = _USER.sub(_without_token, text)
    return _without_parameters(text)


def holds_credentials(text: str) -> bool:
    """Return whether a text holds a password or a token that `redacted` would hide."""
    return redacted(text) != text


def holds_token(text: str) -> bool:
    """Return whether a text holds a token or a key of a kind that can be recognised by how it looks."""
    return _TOKEN.search(text) is not None


def is_secret_name(name: str) -> bool:
    """Return whether what goes by this name is a secret: WANDB_API_KEY, dbPassword."""
    return not _WORDS.isdisjoint(re.split(r"[^a-z0-9]+", _HUMP.sub("_", name).lower()))


def _without_token(found: re.Match[str]) -> str:
    token = found["scheme"].lower().endswith(("http", "https")) and not _REFERENCE.fullmatch(found["user"])
    return f"{found['scheme']}://{HIDDEN}@" if token else found[0]


def _without_parameters(text: str) -> str:
    parts, begin = list[str](), 0
    for found in _PARAMETER.finditer(text):
        # A value that is no secret may be a URL with parameters of its own, so it is looked through.
        value = _VALUE.match(text, found.end())
        if found.start() >= begin and value is not None and value[0] and is_secret_name(found[1]):
            parts += (text[begin : found.end()], HIDDEN)
            begin = value.end()
    return "".join(parts) + text[begin:]
