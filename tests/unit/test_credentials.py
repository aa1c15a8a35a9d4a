"""What is secret in a text is hidden, in all places; what isn't can still be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.credentials import holds_credentials, is_secret_name, redacted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://AKIA:s3cret@bucket/x", "s3://***@bucket/x"),
        ("s3://:s3cret@bucket", "s3://***@bucket"),
        ("s3://AKIA:s3/cret+/@bucket/x", "s3://***@bucket/x"),
        ("ftp://me:s3@cret@host/x", "ftp://***@host/x"),
        ("ftp://me:s3@cr/et@host", "ftp://***@host"),
        ("ftp://me:2121@host", "ftp://***@host"),
        ("HTTPS://t0ken@host/a", "HTTPS://***@host/a"),
        ("git+https://t0ken@host/a@v1", "git+https://***@host/a@v1"),
        ("pull https://t0ken@host/a, then s3://a:b@c", "pull https://***@host/a, then s3://***@c"),
        ("simplecache::s3://a:b@c/d", "simplecache::s3://***@c/d"),
        ("az://box/x?sv=1&sig=s3cret&se=2", "az://box/x?sv=1&sig=***&se=2"),
        ("https://h/x?X-Amz-Signature=s3cret", "https://h/x?X-Amz-Signature=***"),
        ("AccountName=me;AccountKey=s3cret==;Suffix=x", "AccountName=me;AccountKey=***;Suffix=x"),
        ("https://${TOKEN}x@host/a", "https://***@host/a"),
        ("https://me:${TOKEN}x@host/a", "https://***@host/a"),
        ("'s3://a:b@c' is no URL", "'s3://***@c' is no URL"),
    ],
)
def test_credentials_are_hidden(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert holds_credentials(text)
    assert not holds_credentials(shown)


@pytest.mark.parametrize(
    "text",
    [
        "gs://bucket/fray",
        "gs://bucket/a@b?d=e&f",
        "sftp://me@host:22/a@b",
        "sftp://host:22/a@b",
        "abfs://container@account.dfs.core.windows.net/x",
        "ssh://git@github.com/x",
        "http://[fd00::1]:80/a@b",
        "http://host:80?a=b@c",
        "file:///tmp/a:b@c",
        "gcr.io/p/i@sha256:00",
        "k8s?service_account=fray-job&staging=gs://b",
        "a@b.example: see https://host/x",
        "git+https://${TOKEN}@host/a@v1",
        "git+https://oauth2:${TOKEN}@host/a@v1",
        "",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert redacted(text) == text
    assert not holds_credentials(text)


PASSWORDS = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=8).filter(
    lambda password: not password[0].isdigit()
)


@given(PASSWORDS, st.sampled_from(["s3", "ftp", "https", "postgres+psycopg2"]))
def test_no_password_is_ever_shown(password: str, scheme: str) -> None:
    assert password not in redacted(f"at {scheme}://someone:{password}@host/path and on")


@given(st.text() | st.text("ab:/@?&;=*[]# \n", max_size=40))
def test_hiding_twice_changes_nothing(text: str) -> None:
    assert redacted(redacted(text)) == redacted(text)


def test_a_long_text_takes_no_long_time() -> None:
    """Variables may hold 128 KiB; an expression that tries each beginning again would take minutes."""
    assert not holds_credentials("a" * 500_000)


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "HF_TOKEN", "dbPassword", "AccountKey", "sig", "X-Auth"])
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["PATH", "TOKENIZERS_PARALLELISM", "KEYBOARD", "passes", "LOG_LEVEL", ""])
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret_name(name)
