"""What becomes of GKE's words: a reason, when to try again, one sentence and a next step."""

from __future__ import annotations

import pytest

from fray.nodepools.answers import ANSWERS, derive_error, explain_answer, find_zones
from tests.gke.refusals import BY_NAME, REFUSALS, Refusal


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: each.name)
def test_each_text_has_its_reason_and_next_step(refusal: Refusal) -> None:
    error = derive_error("pool a", refusal.text, code=refusal.code)
    assert (error.reason, error.retry) == (refusal.reason, refusal.retry)
    assert refusal.told in f"{error.sentence} {error.remedy}"
    assert error.next_step
    assert "{" not in explain_answer(refusal.text, code=refusal.code).sentence
    assert refusal.text[:40] in error.message


def test_every_row_of_the_table_has_a_text() -> None:
    assert {row.reason for row in ANSWERS.values()} <= {refusal.reason for refusal in REFUSALS}


def test_a_quota_that_comes_as_permission_denied_is_no_missing_right() -> None:
    assert explain_answer(BY_NAME["regional quota"].text, code="PERMISSION_DENIED").reason == "QuotaExceeded"
    assert explain_answer("no", code="PERMISSION_DENIED").reason == "PermissionDenied"


def test_the_zones_that_have_room_are_found_once_each_and_the_full_one_is_not() -> None:
    assert find_zones(BY_NAME["stock-out with other zones"].text) == ("us-east5-b", "us-east5-c")
    assert find_zones(BY_NAME["stock-out"].text) == ()


def test_words_of_any_length_and_shape_are_cut_and_never_a_template() -> None:
    error = derive_error("pool {x}", "quota '{y}' exceeded " + "a b\n" * 100_000)
    assert error.reason == "QuotaExceeded"
    assert len(error.message) < 1_000
    assert "{y}" in error.message
    assert "\n" not in error.message
    assert (
        derive_error("pool", "\x1b]0;title\x07it \x1b[31mbroke\x00").said
        == "it broke\N{REPLACEMENT CHARACTER}"
    )
