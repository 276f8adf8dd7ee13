"""Who is served when, with takers whose turns cost what the test says."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import pytest
from manual_loop import ManualLoop

from headrace.broker.server.sockets.turns import SLICE_S, TURN_S, Turns
from headrace.broker.waiting import round as round_module
from headrace.broker.waiting.round import Round


class World:
    """A clock, a loop and the turns that were taken."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.loop = ManualLoop()
        self.together = Round()
        self.turns = Turns(self.loop, self.together, lambda: self.now_s)  # type: ignore[arg-type]
        self.order: list[str] = []
        self.sockets: list[socket.socket] = []

    def taker(self, name: str, cost_s: float) -> FakeTaker:
        return FakeTaker(self, name, cost_s)

    def close(self) -> None:
        self.turns.close()
        for sock in self.sockets:
            sock.close()


class FakeTaker:
    """Has `work` turns to take, each of which lasts as long as it may or `cost_s`."""

    is_due = False
    served_until = 0.0

    def __init__(self, world: World, name: str, cost_s: float) -> None:
        self.world, self.name, self.cost_s = world, name, cost_s
        self.work = 0
        self.share_s = 0.0
        self.events: list[int] = []
        self.ours, self.theirs = socket.socketpair()
        world.sockets += [self.ours, self.theirs]
        world.turns.join(self.ours.fileno(), self)

    def heard(self, events: int) -> None:
        self.events.append(events)
        self.work += 1

    def turn(self, end: float) -> bool:
        if self.work:
            self.world.order.append(self.name)
            self.work -= 1
            self.world.now_s += self.cost_s
        return self.work > 0

    def settled(self, share_s: float) -> bool:
        self.world.order.append(f"{self.name} settled")
        self.share_s = share_s
        return self.work > 0

    def ask(self) -> None:
        self.theirs.send(b"x")


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_those_who_are_busy_share_and_one_who_asks_now_and_then_is_next(world: World) -> None:
    greedy = [world.taker(name, TURN_S) for name in "abc"]
    modest = world.taker("m", TURN_S / 10)
    for taker in greedy:
        taker.work = 100
        world.turns.want(taker)
    for asked in range(20):
        world.loop.turn()
        world.order.clear()
        modest.ask()
        world.loop.turn()
        # Somebody who was there before may have had as little.
        assert "m" in world.order[:2], asked
    world.order.clear()
    world.loop.settle()
    assert {world.order[:30].count(name) for name in "abc"} == {10}


def test_who_asks_during_a_slice_is_heard_in_it(world: World) -> None:
    class Asking(FakeTaker):
        def turn(self, end: float) -> bool:
            modest.ask()
            return super().turn(end)

    modest, busy = world.taker("m", TURN_S / 10), Asking(world, "b", TURN_S / 10)
    busy.work = 5
    world.turns.want(busy)
    world.loop.turn()
    assert world.order[:3] == ["b", "m", "b"]


def test_who_takes_longer_turns_has_fewer(world: World) -> None:
    cheap, dear = world.taker("c", TURN_S / 4), world.taker("d", TURN_S)
    cheap.work = dear.work = 1000
    for taker in (cheap, dear):
        world.turns.want(taker)
    while len(world.order) < 500:
        world.loop.turn()
    assert world.order.count("c") == pytest.approx(4 * world.order.count("d"), rel=0.02)


def test_who_connects_anew_for_each_request_does_not_overtake_those_who_stay(world: World) -> None:
    modest = world.taker("m", TURN_S)
    for turn in range(30):
        newcomers = [world.taker("n", TURN_S) for _ in range(5)]
        for newcomer in newcomers:
            newcomer.ask()
        modest.ask()
        world.order.clear()
        world.loop.settle()
        assert world.order.count("n") == len(newcomers)
        # At first it is a newcomer itself.
        assert turn == 0 or world.order[0] == "m"


def test_an_idle_taker_saves_up_nothing(world: World) -> None:
    busy, late = world.taker("b", TURN_S), world.taker("l", TURN_S)
    busy.work = 50
    world.turns.want(busy)
    while busy.work:
        world.loop.turn()
    world.order.clear()
    busy.work = late.work = 10
    for taker in (busy, late):
        world.turns.want(taker)
    world.loop.settle()
    assert {world.order[:10].count(name) for name in "bl"} <= {4, 5, 6}


def test_the_loop_has_its_turn_after_a_slice(world: World) -> None:
    taker = world.taker("a", TURN_S)
    taker.work = 100
    world.turns.want(taker)
    world.loop.turn()
    assert len(world.order) <= SLICE_S / TURN_S + 1
    assert len(world.loop.soon) == 1


def test_an_event_is_heard_once_and_the_next_one_again(world: World) -> None:
    taker = world.taker("a", TURN_S)
    world.loop.settle()
    assert taker.events == []
    taker.ask()
    world.loop.settle()
    world.loop.settle()
    assert len(taker.events) == 1
    taker.ask()
    world.loop.settle()
    assert len(taker.events) == 2


def test_a_socket_that_takes_more_is_told_to_who_wants_to_know(world: World) -> None:
    taker = world.taker("a", TURN_S)
    world.turns.watch(taker.ours.fileno(), writable=True)
    world.loop.settle()
    assert len(taker.events) == 1
    world.turns.watch(taker.ours.fileno(), writable=False)
    world.loop.settle()
    assert len(taker.events) == 1


def test_a_taker_that_fails_leaves_the_others_their_turns(world: World) -> None:
    class Failing(FakeTaker):
        def turn(self, end: float) -> bool:
            raise RuntimeError("a defect")

    failing, other = Failing(world, "f", TURN_S), world.taker("o", TURN_S)
    other.work = 1
    world.turns.want(failing)
    world.turns.want(other)
    with pytest.raises(RuntimeError, match="a defect"):
        world.loop.turn()
    world.loop.settle()
    assert world.order == ["o"]


def test_who_left_hears_nothing_more_and_a_close_ends_all(world: World) -> None:
    gone, stays = world.taker("g", TURN_S), world.taker("s", TURN_S)
    gone.ask()
    world.turns.leave(gone.ours.fileno())
    stays.work = 100
    world.turns.want(stays)
    world.loop.turn()
    assert "g" not in world.order
    world.turns.close()
    taken = len(world.order)
    world.loop.settle()
    assert world.order.count("s") == taken < 100


def test_nobody_waits_for_ever(world: World) -> None:
    """Whoever asks among many of all kinds is served within as much time as all are worth together."""
    draw = random.Random(1)
    takers = [world.taker(str(number), draw.uniform(0.01, 3) * TURN_S) for number in range(20)]
    asked: dict[str, float] = {}
    for _ in range(2000):
        for taker in draw.sample(takers, 3):
            if not taker.work:
                asked[taker.name] = world.now_s
                taker.work = draw.randint(1, 4)
                world.turns.want(taker)
        world.order.clear()
        world.loop.turn()
        for name in world.order:
            asked.pop(name, None)
        assert all(world.now_s - since <= 20 * 3 * 4 * TURN_S for since in asked.values())


class Joining(FakeTaker):
    """Joins the round in each turn, if there is one; together they cost what each says."""

    def turn(self, end: float) -> bool:
        together = self.world.together
        if self.work and together.is_open:
            together.join(self.performed, self, request_count=1, size=1)
        return super().turn(end)

    def performed(self, joined: list[FakeTaker]) -> None:
        self.world.order.append("performed for " + "".join(taker.name for taker in joined))
        self.world.now_s += self.cost_s * len(joined)


def test_what_takers_join_is_done_once_all_of_them_had_their_turn_and_before_they_have_another(
    world: World,
) -> None:
    takers = [Joining(world, name, TURN_S / 10) for name in "abcde"]
    for taker in takers:
        taker.work = 2
        world.turns.want(taker)
    world.loop.turn()
    settled = [f"{name} settled" for name in "abcde"]
    assert world.order == [*"abcde", "performed for abcde", *settled]
    assert [taker.share_s for taker in takers] == [pytest.approx(TURN_S / 10)] * 5
    world.order.clear()
    world.loop.settle()
    assert sorted(world.order[:5]) == list("abcde")
    assert world.order[5].startswith("performed for")


@pytest.mark.parametrize(("work", "performed"), [(1, "abcde"), (2, "a")])
def test_a_round_ends_only_before_who_joined_it_has_another_turn(
    world: World, work: int, performed: str
) -> None:
    for name in "abcde":
        taker = Joining(world, name, TURN_S / 100)
        # Who had least of late would be next again, if it has more to do.
        taker.work, taker.served_until = (work, 0.0) if name == "a" else (1, TURN_S)
        world.turns.want(taker)
    world.loop.turn()
    assert world.order[len(performed)] == f"performed for {performed}"


def test_few_takers_join_nobody(world: World) -> None:
    for name in "abcd":
        taker = Joining(world, name, TURN_S / 10)
        taker.work = 2
        world.turns.want(taker)
    world.loop.settle()
    assert sorted(world.order) == list("aabbccdd")


def test_what_takers_have_done_together_counts_as_served(world: World) -> None:
    joining = [Joining(world, name, TURN_S / 20) for name in "abcde"]
    other = world.taker("o", TURN_S / 10)
    for taker in (*joining, other):
        taker.work = 300
        world.turns.want(taker)
    while other.work > 100:
        world.loop.turn()
    assert world.order.count("a") == pytest.approx(200, rel=0.1)


def test_a_round_that_is_full_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_module, "ROUND_REQUESTS_MAX", 2)
    for name in "abcde":
        taker = Joining(world, name, TURN_S / 100)
        taker.work = 1
        world.turns.want(taker)
    world.loop.turn()
    assert world.order == ["a", "b", "performed for ab", "a settled", "b settled"]
    world.loop.settle()
    assert world.order[5:] == ["c", "d", "e"]
