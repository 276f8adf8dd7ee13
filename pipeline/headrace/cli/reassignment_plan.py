"""Which brokers shall hold which partitions: as few moves as an even spread over brokers and racks allows. Pure.

Invariants: a partition's replicas lie on different brokers, and in different racks as far as there are enough; a replica
that may stay where it is stays, unless its broker has more than its share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

Key = tuple[str, int]
Replicas = tuple[int, ...]


class PlanError(ValueError):
    """There is no such plan; the text says what to do."""


def plan(
    partitions: Mapping[Key, Sequence[int]], brokers: Mapping[int, str | None], factor: int | None = None
) -> dict[Key, Replicas]:
    """The replicas that each partition is to have, preferred leader first; `brokers` maps those that may hold some to racks.

    `factor` is how many replicas each gets; as many as it has by default. Raises PlanError.
    """
    most = max((factor or len(replicas) for replicas in partitions.values()), default=0)
    if most > len(brokers):
        raise PlanError(
            f"{most} replicas need as many brokers: name more than {len(brokers)}, or fewer replicas"
        )
    spread = _Spread(brokers)
    for key, replicas in sorted(partitions.items()):
        spread.keep(key, [r for r in replicas if r in brokers][: factor or len(replicas)])
    for key, replicas in sorted(partitions.items()):
        spread.fill(key, factor or len(replicas))
    spread.even_out()
    return _led_evenly(spread.replicas)


class _Spread:
    """The plan as far as it is made: replicas by partition, and how many each broker has."""

    def __init__(self, brokers: Mapping[int, str | None]) -> None:
        self._racks = brokers
        self._counts = Counter(dict.fromkeys(sorted(brokers), 0))
        self.replicas: dict[Key, list[int]] = {}

    def keep(self, key: Key, replicas: list[int]) -> None:
        self.replicas[key] = replicas
        self._counts.update(replicas)

    def fill(self, key: Key, factor: int) -> None:
        """Add replicas on the brokers that have the fewest, in racks that have none first."""
        replicas = self.replicas[key]
        while len(replicas) < factor:
            others = [broker for broker in self._racks if broker not in replicas]
            chosen = min(others, key=lambda b: (self._shares_rack(b, replicas), self._counts[b], b))
            replicas.append(chosen)
            self._counts[chosen] += 1

    def even_out(self) -> None:
        """Move replicas from the brokers that have the most to those that have the fewest, until they differ by one."""
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        """Each move brings the counts of two brokers closer together, so there is an end to it."""
        order = sorted(self._counts, key=lambda b: (self._counts[b], b))
        for source in reversed(order):
            for target in order:
                if self._counts[source] - self._counts[target] < 2:
                    break
                if self._moved(source, target):
                    return True
        return False

    def _moved(self, source: int, target: int) -> bool:
        for replicas in self.replicas.values():
            if source in replicas and target not in replicas:
                others = [r for r in replicas if r != source]
                if self._shares_rack(target, others) <= self._shares_rack(source, others):
                    replicas[replicas.index(source)] = target
                    self._counts[source] -= 1
                    self._counts[target] += 1
                    return True
        return False

    def _shares_rack(self, broker: int, others: Sequence[int]) -> bool:
        rack = self._racks[broker]
        return rack is not None and any(self._racks[other] == rack for other in others)


def _led_evenly(replicas: Mapping[Key, list[int]]) -> dict[Key, Replicas]:
    """Have brokers be the first replica equally often, changing as few first ones as that takes."""
    firsts = Counter(r for found in replicas.values() for r in found)
    firsts = Counter(dict.fromkeys(firsts, 0))
    firsts.update(found[0] for found in replicas.values() if found)
    chosen = {}
    for key, found in replicas.items():
        if not found:
            continue
        least = min(found, key=lambda r: (firsts[r], found.index(r)))
        if firsts[found[0]] - firsts[least] > 1:
            firsts[found[0]] -= 1
            firsts[least] += 1
            found = [least, *(r for r in found if r != least)]
        chosen[key] = tuple(found)
    return chosen
