"""What is kept of a partition that is owned."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from headrace.mirror.aggregate.held import Held
from headrace.mirror.aggregate.position import Position
from headrace.mirror.aggregate.search import Search
from headrace.mirror.copy.copier import PAUSED
from headrace.mirror.copy.progress import Progress
from headrace.mirror.pause import Pause

POSITION = Position(producer_id=1, topic_id=UUID(int=1), offset=10, sequence=5)


def held() -> Held:
    found = Held(key=("clicks", 0), pause=Pause(100, 100), progress=Progress())
    found.begins(POSITION, 3)
    return found


def test_what_the_target_has_is_looked_up_unless_it_is_just_what_is_known() -> None:
    one = held()
    assert [one.is_ahead(sequence) for sequence in (None, 6, 5, 4)] == [True, True, False, False]


def test_a_search_that_told_nothing_is_not_made_again_until_a_person_changed_the_position() -> None:
    one = held()
    one.search = Search(1, 0, log_start=5, log_end=5)
    one.begins(POSITION, 3)
    assert one.search is not None
    one.begins(replace(POSITION, offset=0), 4)
    assert one.search is None


def test_a_paused_one_says_so() -> None:
    one = held()
    assert one.condition == "locating"
    one.is_paused = True
    assert one.condition == PAUSED
