"""What only the queue over HTTP must stand: tokens, impostors, lost answers, limits."""

from __future__ import annotations

import http.client
import pickle
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fray.errors import (
    ItemTooLargeError,
    LeaseLostError,
    QueueAnswerError,
    QueueArgumentError,
    QueueFullError,
    QueueNotFoundError,
    QueueServerError,
    QueueTokenError,
    QueueUnreachableError,
)
from fray.queue import ClientLimits, HttpQueue, HttpQueueServer, ServerLimits
from fray.queue.protocol import digest_of, sign_request
from tests.queue.clocks import Clock
from tests.queue.middleman import Answer, Behaviour, middleman, queue_through

TOKEN = "a token of more than sixteen characters"
ONCE = ClientLimits(retry_seconds=0)

unpickled: list[str] = []


class Bomb:
    """Notes that it was unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickled.append, ("bomb",)


@pytest.fixture(autouse=True)
def _no_bomb_goes_off() -> Any:
    unpickled.clear()
    yield
    assert unpickled == []


def test_only_loopback_is_listened_on_unless_told_otherwise() -> None:
    assert HttpQueueServer().host == "127.0.0.1"


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "10.0.0.1", "queue.example", "localhost.example"])
def test_an_address_that_others_reach_needs_a_token(host: str) -> None:
    with pytest.raises(QueueTokenError, match="a token is needed"):
        HttpQueueServer(host)
    HttpQueueServer(host, token=TOKEN)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_on_loopback_a_token_is_made(host: str) -> None:
    one, two = HttpQueueServer(host), HttpQueueServer(host)
    assert len(one.token) >= 32
    assert one.token != two.token


@pytest.mark.parametrize("token", ["", "fifteen letters"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_short_token_is_refused(host: str, token: str) -> None:
    with pytest.raises(QueueTokenError, match="fewer than 16"):
        HttpQueueServer(host, token=token)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::"])
def test_clients_get_an_address_that_they_can_reach(host: str) -> None:
    found = HttpQueueServer(host, token=TOKEN).get_client_host()
    assert found not in ("0.0.0.0", "", "::")
    socket.inet_aton(found)
    assert HttpQueueServer("127.0.0.1").get_client_host() == "127.0.0.1"


def test_a_client_needs_a_token() -> None:
    with pytest.raises(QueueTokenError, match="a client needs the token"):
        HttpQueue("127.0.0.1", 9999, "q")


def test_another_token_is_refused_by_the_server(server: HttpQueueServer) -> None:
    server.new_queue("q").push("a")
    stranger: HttpQueue[str] = HttpQueue("127.0.0.1", server.port, "q", token=TOKEN)
    for use in (stranger.pop, stranger.peek, stranger.size, lambda: stranger.push("b")):
        with pytest.raises(QueueTokenError, match="another token"):
            use()
    assert server.new_queue("q").size() == 1


def test_both_forms_of_an_address_mean_the_same(server: HttpQueueServer) -> None:
    server.new_queue("q").push("a")
    url: HttpQueue[str] = HttpQueue(f"http://127.0.0.1:{server.port}/", "q", token=server.token)
    parts: HttpQueue[str] = HttpQueue("127.0.0.1", server.port, "q", token=server.token)
    assert url.peek() == parts.peek() == "a"


def test_the_token_isnt_shown(server: HttpQueueServer) -> None:
    assert server.token not in repr(server.new_queue("q"))


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "ä", "x" * 64, "a?b", "a\n"])
def test_a_name_must_fit_into_a_path(server: HttpQueueServer, name: str) -> None:
    with pytest.raises(QueueArgumentError, match="name must be"):
        server.new_queue(name)
    with pytest.raises(QueueArgumentError, match="name must be"):
        HttpQueue("127.0.0.1", server.port, name, token=TOKEN)


def test_queues_of_one_server_are_apart_and_one_name_is_one_queue(server: HttpQueueServer) -> None:
    server.new_queue("a").push(1)
    server.new_queue("b").push(2)
    assert server.new_queue("a").peek() == 1
    assert server.new_queue("b").peek() == 2


def test_an_unknown_queue_is_an_error(server: HttpQueueServer) -> None:
    queue: HttpQueue[str] = HttpQueue("127.0.0.1", server.port, "nobody", token=server.token)
    for use in (queue.pop, queue.peek, queue.pending, lambda: queue.push("a")):
        with pytest.raises(QueueNotFoundError) as caught:
            use()
        assert caught.value.name == "nobody"


def test_the_server_never_unpickles(server: HttpQueueServer) -> None:
    queue = server.new_queue("q")
    queue.push(Bomb())
    assert queue.size() == 1
    lease_id = "0" * 32
    assert queue._ask("pop", lease=lease_id, seconds=1.0).body == pickle.dumps(Bomb(), protocol=5)  # type: ignore[arg-type]


def test_an_item_over_the_limit_is_refused_and_the_rest_goes_on() -> None:
    with HttpQueueServer(port=0, limits=ServerLimits(max_item_bytes=1000)) as server:
        queue = server.new_queue("q")
        with pytest.raises(ItemTooLargeError) as caught:
            queue.push(b"x" * 100_000)
        assert caught.value.limit == 1000
        assert caught.value.size > 100_000
        queue.push(b"small")
        assert queue.peek() == b"small"


def test_a_full_server_takes_no_more_until_items_are_done() -> None:
    with HttpQueueServer(port=0, limits=ServerLimits(max_bytes=1000)) as server:
        queue, other = server.new_queue("q"), server.new_queue("other")
        queue.push(b"x" * 600)
        with pytest.raises(QueueFullError):
            other.push(b"x" * 600)
        lease = queue.pop()
        assert lease is not None
        with pytest.raises(QueueFullError):
            other.push(b"x" * 600)
        queue.done(lease)
        other.push(b"x" * 600)


def test_a_server_counts_items_too() -> None:
    with HttpQueueServer(port=0, limits=ServerLimits(max_items=2)) as server:
        queue = server.new_queue("q")
        queue.push(1)
        queue.push(2)
        with pytest.raises(QueueFullError):
            queue.push(3)
        lease = queue.pop()
        assert lease is not None
        queue.done(lease)
        queue.push(3)


def test_a_port_that_is_taken_is_an_error(server: HttpQueueServer) -> None:
    with pytest.raises(QueueServerError, match=str(server.port)), HttpQueueServer(port=server.port):
        pass


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("a" * 64, 0)])
def test_an_address_that_is_none_is_an_error(host: str, port: int) -> None:
    with pytest.raises(QueueServerError), HttpQueueServer(host, port, token=TOKEN):
        pass


def test_no_thread_stays_behind() -> None:
    before = set(threading.enumerate())  # some of which may end during the test
    with HttpQueueServer(port=0) as server:
        server.new_queue("q").push(1)
    assert set(threading.enumerate()) <= before
    with pytest.raises(QueueServerError, match="inside its `with` block"):
        server.new_queue("q")


def test_no_server_is_an_error() -> None:
    with HttpQueueServer(port=0) as server:
        queue = queue_through(server.port, server, limits=ONCE)
    with pytest.raises(QueueUnreachableError):
        queue.push(1)


def test_a_client_waits_for_a_server_that_starts_again() -> None:
    server = HttpQueueServer(port=0)
    with server:
        queue = server.new_queue("q")
        queue.push("before")
    pushing = threading.Thread(target=queue.push, args=("pushed late",))
    pushing.start()
    with server:
        pushing.join()
        assert [queue.peek(), queue.size()] == ["before", 2]


def lose_first(ask: str, *, forward_first: bool) -> Behaviour:
    """Cut the first request of a kind, before or after the server got it."""
    left = [ask]

    def behave(path: str, forward: Callable[[], Answer]) -> Answer | None:
        if left and f"/{left[0]}" in path:
            left.clear()
            if forward_first:
                forward()
            return None
        return forward()

    return behave


@pytest.mark.parametrize("forward_first", [True, False], ids=["answer-lost", "request-lost"])
@pytest.mark.parametrize("ask", ["push", "pop", "renew", "done", "release", "peek", "count"])
def test_a_repeated_request_is_done_once(server: HttpQueueServer, ask: str, forward_first: bool) -> None:
    with middleman(server, lose_first(ask, forward_first=forward_first)) as port:
        queue = queue_through(port, server)
        queue.push("a")
        queue.push("b")
        assert queue.size() == 2
        assert queue.peek() == "a"
        first = queue.pop()
        assert first is not None
        assert first.item == "a"
        queue.renew(first)
        queue.release(first)
        first = queue.pop()
        assert first is not None
        assert first.item == "a"
        assert (queue.size(), queue.pending()) == (1, 1)
        queue.done(first)
        assert (queue.size(), queue.pending()) == (1, 0)
        with pytest.raises(LeaseLostError):
            queue.done(first)


def test_an_item_whose_answer_never_arrives_comes_back(server: HttpQueueServer, clock: Clock) -> None:
    def swallow(path: str, forward: Callable[[], Answer]) -> Answer | None:
        answer = forward()
        return None if "/pop" in path else answer

    with middleman(server, swallow) as port:
        queue = queue_through(port, server, limits=ONCE)
        queue.push("a")
        with pytest.raises(QueueUnreachableError):
            queue.pop(10)
    direct = server.new_queue("q")
    assert direct.pop() is None
    clock.advance(10)
    lease = direct.pop()
    assert lease is not None
    assert lease.item == "a"


def always(answer: Answer) -> Behaviour:
    return lambda *_: answer


@pytest.mark.parametrize(
    "headers",
    [{}, {"Fray-Answer-Signature": ""}, {"Fray-Answer-Signature": "0" * 64}, {"Fray-Answer-Signature": "ä"}],
)
@pytest.mark.parametrize("status", [200, 204, 206, 302, 404, 409, 413, 500, 507])
def test_an_answer_without_proof_is_not_believed(
    server: HttpQueueServer, status: int, headers: dict[str, str]
) -> None:
    with middleman(server, always(Answer(status, headers, pickle.dumps(Bomb())))) as port:
        queue = queue_through(port, server)
        for use in (queue.pop, queue.peek, queue.size):
            with pytest.raises(QueueAnswerError, match="without a proof"):
                use()


def test_an_answer_with_a_changed_body_or_status_is_not_believed(server: HttpQueueServer) -> None:
    changes: list[dict[str, Any]] = [{"body": pickle.dumps(Bomb())}, {"body": b""}, {"status": 409}]
    for change in changes:
        with middleman(server, lambda *asked, change=change: replace(asked[1](), **change)) as port:
            queue = queue_through(port, server)
            server.new_queue("q").push("a")
            with pytest.raises(QueueAnswerError, match="without a proof"):
                queue.peek()


def test_an_answer_to_another_request_is_not_believed(server: HttpQueueServer) -> None:
    kept: list[Answer] = []

    def replay(path: str, forward: Callable[[], Answer]) -> Answer:
        kept.append(forward())
        return kept[0]

    with middleman(server, replay) as port:
        queue = queue_through(port, server)
        server.new_queue("q").push("a")
        assert queue.peek() == "a"
        with pytest.raises(QueueAnswerError, match="without a proof"):
            queue.peek()


def test_a_changed_request_is_not_obeyed(server: HttpQueueServer) -> None:
    """Who sits in between can't turn one request into another: the path is part of the proof."""
    server.new_queue("q").push("a")
    signature = sign_request(server.token, path="/queues/q/peek", nonce="1", length=0, digest=digest_of(b""))
    headers = {"Fray-Nonce": "1", "Fray-Digest": digest_of(b""), "Fray-Signature": signature}
    for path, status in [("/queues/q/peek", 200), (f"/queues/q/pop?seconds=1&lease={'0' * 32}", 401)]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", path, b"", headers)
        assert connection.getresponse().status == status
        connection.close()
    assert server.new_queue("q").pending() == 0


def test_a_busy_server_is_asked_again(server: HttpQueueServer) -> None:
    busy = [503, 429, 408]

    def behave(path: str, forward: Callable[[], Answer]) -> Answer:
        return Answer(busy.pop()) if busy else forward()

    with middleman(server, behave) as port:
        queue = queue_through(port, server)
        queue.push("a")
    assert busy == []
    assert server.new_queue("q").size() == 1


def test_an_endless_answer_is_cut(server: HttpQueueServer) -> None:
    with middleman(server, always(Answer(200, {}, b"x" * 10_000))) as port:
        queue = queue_through(port, server, limits=ClientLimits(max_item_bytes=5000))
        with pytest.raises(QueueAnswerError, match="more than 5000 bytes"):
            queue.pop()


def test_a_forked_client_has_connections_of_its_own(server: HttpQueueServer) -> None:
    queue = server.new_queue("q")
    queue.push("a")
    copy: HttpQueue[str] = pickle.loads(pickle.dumps(queue))
    copy._pid = -1
    before = copy._connections()
    assert before is copy._connections()
    copy._pid = -1
    assert copy._connections() is not before
    assert copy.peek() == "a"
