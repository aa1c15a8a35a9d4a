"""Whose turn it is to hear the head: one thread at a time, and never nobody for long."""

from __future__ import annotations

import threading

import pytest

from fray.runtime.pool.worker import hearing
from fray.runtime.pool.worker.hearing import HearingTurn

PATIENCE = 60


@pytest.fixture
def no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reader wait until it's woken."""
    monkeypatch.setattr(hearing, "LOOK_SECONDS", PATIENCE)


def start_reader(turn: HearingTurn) -> threading.Thread:
    reader = threading.Thread(target=turn.await_turn, daemon=True)
    reader.start()
    return reader


def test_the_reader_has_the_turn_at_first() -> None:
    assert HearingTurn().await_turn() == []


def test_a_loan_is_taken_up_once_and_given_back() -> None:
    turn = HearingTurn()
    loan = turn.lend()
    assert turn.take_up(loan)
    assert not turn.take_up(loan)
    turn.give_back([])
    assert turn.await_turn() == []


def test_the_reader_gets_once_what_was_heard_and_not_done() -> None:
    turn = HearingTurn()
    assert turn.take_up(turn.lend())
    turn.give_back(["a message"])
    assert turn.await_turn() == ["a message"]
    assert turn.await_turn() == []


@pytest.mark.usefixtures("no_look")
def test_an_earlier_loan_is_over() -> None:
    turn = HearingTurn()
    earlier = turn.lend()
    turn.recall()
    assert turn.lend() > earlier
    assert not turn.take_up(earlier)


def test_the_reader_takes_back_what_nobody_takes_up() -> None:
    turn = HearingTurn()
    loan = turn.lend()
    turn.await_turn()
    assert not turn.take_up(loan)


def test_the_reader_takes_back_a_loan_after_one_that_was_used() -> None:
    turn = HearingTurn()
    assert turn.take_up(turn.lend())
    reader = start_reader(turn)
    loan = turn.lend()  # by the one that has the turn
    reader.join(PATIENCE)
    assert not reader.is_alive()
    assert not turn.take_up(loan)


@pytest.mark.usefixtures("no_look")
def test_a_turn_that_is_used_by_nobody_is_recalled_at_once() -> None:
    turn = HearingTurn()
    loan = turn.lend()
    reader = start_reader(turn)
    turn.recall()
    reader.join(PATIENCE / 2)
    assert not reader.is_alive()
    assert not turn.take_up(loan)


@pytest.mark.usefixtures("no_look")
def test_a_turn_that_is_used_is_left_to_its_holder() -> None:
    turn = HearingTurn()
    assert turn.take_up(turn.lend())
    turn.recall()
    turn.give_back([], ValueError("the connection has ended"))
    with pytest.raises(ValueError, match="the connection has ended"):
        turn.await_turn()
