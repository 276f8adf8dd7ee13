"""One decision of a shard in the making: what it proposes, and the drafts of groups that it changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.broker.config.sections import Groups
from headrace.broker.coordinators.decision import Decision
from headrace.broker.groups.events import Event, TransactionEnded
from headrace.broker.groups.group import Group


@dataclass(slots=True, kw_only=True)
class GroupDecision(Decision[Event]):
    """`groups` are groups as they will be in what no record keeps, by id; None for one that is to be forgotten.

    `ended` is a transaction whose marker is in the log. With `may_resize` the groups' members may take more or
    less memory than before; assignments are weighed when their record is applied.
    """

    groups: dict[str, Group | None] = field(default_factory=dict)
    ended: TransactionEnded | None = None
    may_resize: bool = False


@dataclass(slots=True, kw_only=True)
class Turn:
    """What time it is, whom to answer, and what has been decided so far."""

    now_ms: int
    token: int
    config: Groups
    decision: GroupDecision = field(default_factory=GroupDecision)

    def draft(self, group: Group, *, may_resize: bool = True) -> Group:
        """The group as this decision leaves it, to be changed; what is in memory stays as it is."""
        draft = self.decision.groups[group.group_id] = group.draft()
        self.decision.may_resize = may_resize
        return draft

    def answer(self, answer: object) -> None:
        """Answer the request that is being decided."""
        self.decision.reply(self.token, answer)
