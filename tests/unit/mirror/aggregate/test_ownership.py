"""Algorithm 1 for one member, as a script of what it sees and what it does."""

from headrace.mirror.aggregate.ownership import Claim, Ownership, Release, assigned

KEYS = [("clicks", n) for n in range(4)]


def member(name: str = "b", session: int = 1) -> Ownership:
    ownership = Ownership(name, retry_ms=100)
    ownership.joined(session)
    ownership.partitions_changed(KEYS)
    return ownership


def claims(*keys: tuple[str, int], session: int = 1) -> list[Release | Claim]:
    return [Claim(key=key, session=session) for key in keys]


def test_ranges_cover_all_partitions_once_and_differ_by_one_at_most() -> None:
    for count in range(1, 8):
        names = [f"m{n}" for n in range(count)]
        ranges = [assigned(name, reversed(names), reversed(KEYS)) for name in names]
        assert [key for found in ranges for key in found] == KEYS
        assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
    assert assigned("stranger", names, KEYS) == ()


def test_nothing_is_claimed_before_it_sees_itself_among_the_members() -> None:
    ownership = member()
    assert ownership.commands(0) == []
    ownership.members_changed(["a"])
    assert ownership.commands(0) == []


def test_it_claims_its_range_and_each_partition_once() -> None:
    ownership = member()
    ownership.members_changed(["a", "b"])
    assert ownership.commands(0) == claims(*KEYS[2:])
    assert ownership.commands(0) == []
    ownership.claimed(Claim(key=KEYS[2], session=1))
    assert ownership.owned == {KEYS[2]}


def test_what_somebody_else_still_owns_is_tried_again_after_a_wait() -> None:
    ownership = member()
    ownership.members_changed(["b"])
    for claim in ownership.commands(0):
        assert isinstance(claim, Claim)
        ownership.claimed(claim) if claim.key != KEYS[3] else ownership.refused(claim, 0)
    assert ownership.commands(99) == []
    assert ownership.commands(100) == claims(KEYS[3])


def test_a_new_member_has_it_release_what_is_anothers_and_keep_the_rest() -> None:
    ownership = member()
    ownership.members_changed(["b"])
    for claim in ownership.commands(0):
        assert isinstance(claim, Claim)
        assert ownership.claimed(claim)
    ownership.members_changed(["a", "b"])
    given_up = ownership.commands(0)
    assert given_up == [Release(key=key, session=1) for key in KEYS[:2]]
    assert ownership.owned == set(KEYS), "owned until the registry no longer says so"
    for release in given_up:
        assert isinstance(release, Release)
        ownership.released(release)
    assert ownership.owned == set(KEYS[2:])


def test_what_is_being_released_is_claimed_again_only_afterwards() -> None:
    ownership = member()
    ownership.members_changed(["b"])
    for claim in ownership.commands(0):
        assert isinstance(claim, Claim)
        assert ownership.claimed(claim)
    ownership.members_changed(["a", "b"])
    first, second = ownership.commands(0)
    ownership.members_changed(["b"])
    assert ownership.commands(0) == []
    assert isinstance(first, Release)
    assert isinstance(second, Release)
    ownership.released(first)
    assert ownership.commands(0) == claims(first.key)


def test_a_lost_session_ends_all_of_it_and_late_answers_count_for_nothing() -> None:
    ownership = member()
    ownership.members_changed(["b"])
    (first, second, third, _) = ownership.commands(0)
    assert isinstance(first, Claim)
    assert isinstance(second, Claim)
    assert isinstance(third, Claim)
    ownership.claimed(first)
    ownership.session_lost()
    assert not ownership.owned
    assert ownership.commands(0) == []
    ownership.joined(2)
    ownership.members_changed(["b"])
    assert ownership.commands(0) == claims(*KEYS, session=2)
    assert not ownership.claimed(second)
    ownership.refused(third, 0)
    ownership.released(Release(key=first.key, session=1))
    assert not ownership.owned
    assert ownership.commands(1_000) == []
