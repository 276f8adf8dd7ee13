"""What a follower sends in a fetch session, request by request."""

from __future__ import annotations

from headrace.broker.errors import ErrorCode
from headrace.broker.wire.client.fetch_session import LAST_EPOCH, FetchSession
from headrace.broker.wire.client.replica_fetch import FetchQuestion, WireKey


def key(index: int) -> WireKey:
    return b"t" * 16, index


def at(offset: int) -> FetchQuestion:
    return FetchQuestion(1, offset, 1, 0)


def begun(*indexes: int) -> FetchSession:
    """A session that the leader keeps, in which these are asked for at 0."""
    session = FetchSession()
    for index in indexes:
        session.ask(key(index), at(0))
    session.due()
    assert session.answered(0, 77)
    return session


def test_the_first_request_asks_for_all_and_those_that_follow_for_what_moved() -> None:
    session = FetchSession()
    for index in range(3):
        session.ask(key(index), at(0))
    assert session.due() == (0, 0, [(key(0), at(0)), (key(1), at(0)), (key(2), at(0))], [])
    assert session.answered(0, 77)
    assert session.due() == (77, 1, [], [])
    assert session.answered(0, 77)
    session.ask(key(1), at(5))
    session.ask(key(2), at(0))
    assert session.due() == (77, 2, [(key(1), at(5))], [])


def test_what_is_no_longer_asked_is_forgotten_once() -> None:
    session = begun(0, 1)
    session.forget(key(0))
    session.ask(key(2), at(0))
    session.forget(key(2))
    assert session.due() == (77, 1, [], [key(0)])
    session.answered(0, 77)
    assert session.due() == (77, 2, [], [])


def test_what_is_forgotten_and_asked_anew_is_only_asked() -> None:
    session = begun(0)
    session.forget(key(0))
    session.ask(key(0), at(0))
    assert session.due() == (77, 1, [(key(0), at(0))], [])


def test_after_a_failure_everything_is_asked_and_the_old_session_ended() -> None:
    session = begun(0, 1)
    session.ask(key(0), at(3))
    session.due()
    session.failed()
    assert session.due() == (77, 0, [(key(1), at(0)), (key(0), at(3))], [])


def test_a_session_that_the_leader_does_not_know_begins_anew() -> None:
    session = begun(0)
    session.due()
    assert not session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert session.due() == (0, 0, [(key(0), at(0))], [])
    session.answered(0, 78)
    session.due()
    assert not session.answered(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert session.due()[:2] == (78, 0)


def test_without_a_session_each_request_asks_for_all_what_moved_last() -> None:
    session = FetchSession()
    session.ask(key(0), at(0))
    session.ask(key(1), at(0))
    session.due()
    assert session.answered(0, 0)
    session.ask(key(0), at(4))
    assert session.due() == (0, 0, [(key(1), at(0)), (key(0), at(4))], [])


def test_a_leader_that_ends_the_session_is_asked_for_all() -> None:
    session = begun(0)
    session.forget(key(0))
    assert not session.is_empty
    session.due()
    session.answered(0, 0)
    assert session.due() == (0, 0, [], []), "it knows that nothing is kept for it any more"
    session.ask(key(1), at(0))
    assert session.due() == (0, 0, [(key(1), at(0))], [])


def test_the_epoch_goes_around_without_beginning_anew() -> None:
    session = begun(0)
    session.epoch = LAST_EPOCH
    session.due()
    session.answered(0, 77)
    assert session.due()[:2] == (77, 1)


def test_nothing_asked_is_nothing_to_send() -> None:
    session = FetchSession()
    assert session.is_empty
    session.ask(key(0), at(0))
    session.forget(key(0))
    assert session.is_empty
