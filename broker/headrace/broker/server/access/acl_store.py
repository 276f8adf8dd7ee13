"""The access control lists in ZooKeeper: read whole at the start, kept true by notifications, changed by compare and set.

Invariants: a list is read from its znode, never from a notification, so that reading one twice or late does no harm; what was
read earlier never replaces what was read later; a list that cannot be read refuses everybody but super users what it is about,
with a line in the log. Kafka's own brokers and tools write the same znodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from headrace.broker.auth.acl_authorizer import UNREADABLE, AclAuthorizer, Entries
from headrace.broker.auth.acls import (
    Binding,
    BindingFilter,
    Pattern,
    PatternType,
    of_title,
    title,
)
from headrace.broker.auth.operations import ResourceType
from headrace.broker.auth.principal import Principal
from headrace.broker.clock import Clock
from headrace.broker.errors import ErrorCode, InvalidRequestError, KafkaError, error_of
from headrace.broker.server.mailbox import Mailbox
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks
from headrace.broker.zk import acls, paths
from headrace.broker.zk.client import SessionListener, ZooKeeperClient
from headrace.broker.zk.reads import understood
from headrace.broker.zk.znodes import (
    NoZnodeError,
    Znode,
    ZnodeExistsError,
    ZnodeVersionError,
    ZooKeeperClosedError,
)

logger = get_logger(__name__)
WRITES_MAX = 11
"""As often a change is tried that somebody else is faster with."""
RETRY_DELAY_S = 0.1
NOTIFICATION_LIFE_MS = 15 * 60 * 1000
Change = Callable[[Entries], Entries]


class AclStore(SessionListener):
    """Tells the authorizer of every list; `load` before it is asked."""

    def __init__(self, authorizer: AclAuthorizer, zookeeper: ZooKeeperClient, clock: Clock) -> None:
        self.authorizer = authorizer
        self._zookeeper = zookeeper
        self._clock = clock
        # Of its own: a change is to be seen while other work in the cluster takes its time.
        self._mailbox = Mailbox(_work_failed)
        self._seen: dict[str, int] = {}
        # A znode's read and what comes of it are one step: nobody's later one comes between.
        self._turn = asyncio.Lock()

    async def load(self) -> None:
        """Read all lists; raises ZooKeeperError, and then nobody is let in."""
        for path in acls.PERSISTENT_PATHS:
            await self._zookeeper.ensure(path)
        await self._read_all()

    def watch(self, tasks: Tasks) -> None:
        """Follow what is notified from now on; what was notified before is read once more."""
        tasks.start("access control lists", self._mailbox.run())
        for pattern_type, path in acls.CHANGES.items():
            notified = partial(self._notified, pattern_type)
            self._zookeeper.watch_children(path, partial(self._post, notified))
        self._zookeeper.add_listener(self)

    def _post(self, notified: Callable[[list[str]], Awaitable[None]], names: list[str]) -> None:
        self._mailbox.post(partial(notified, names))

    def session_started(self) -> None:
        """The session before was lost, and notifications may have come and gone since."""
        self._mailbox.post(self._read_all)

    def counts(self) -> tuple[int, int]:
        """(lists, those of them that cannot be read)."""
        lists = self.authorizer.lists.values()
        return len(lists), sum(entries is UNREADABLE for entries in lists)

    def matching(self, wanted: BindingFilter) -> list[Binding]:
        """The bindings that the filter takes, as this broker knows them."""
        return self.authorizer.matching(wanted)

    async def create(self, bindings: Sequence[Binding]) -> list[KafkaError | None]:
        """Add each to its list; why not, or None, for each."""
        results: list[KafkaError | None] = [_problem(binding) for binding in bindings]
        valid = [n for n, problem in enumerate(results) if problem is None]
        for pattern in dict.fromkeys(bindings[n].pattern for n in valid):
            mine = [n for n in valid if bindings[n].pattern == pattern]
            entries = frozenset(bindings[n].entry for n in mine)
            try:
                for entry in entries:
                    _check_principal(entry.principal)
                await self._change(pattern, entries.union)
            except KafkaError as error:
                for n in mine:
                    results[n] = error
        return results

    async def delete(self, filters: Sequence[BindingFilter]) -> list[list[tuple[Binding, KafkaError | None]]]:
        """Take away what each of the filters takes; (binding, why it is still there) for each, under its first filter."""
        results: list[list[tuple[Binding, KafkaError | None]]] = [[] for _ in filters]
        named = (pattern for each in filters for pattern in each.pattern.named())
        for pattern in sorted({*self.authorizer.lists, *named}):
            wanted = [(n, f) for n, f in enumerate(filters) if f.pattern.matches(pattern)]
            if not wanted:
                continue
            taken: dict[Binding, int] = {}

            def left(
                entries: Entries,
                pattern: Pattern = pattern,
                wanted: list[tuple[int, BindingFilter]] = wanted,
                taken: dict[Binding, int] = taken,
            ) -> Entries:
                for entry in sorted(entries):
                    number = next((n for n, f in wanted if f.entry.matches(entry)), None)
                    if number is not None:
                        taken.setdefault(Binding(pattern, entry), number)
                return frozenset(e for e in entries if Binding(pattern, e) not in taken)

            failure: KafkaError | None = None
            try:
                await self._change(pattern, left)
            except KafkaError as error:
                failure = error
            for binding, number in taken.items():
                results[number].append((binding, failure))
        return results

    async def _change(self, pattern: Pattern, change: Change) -> None:
        """Replace a list by `change(list)` and tell all brokers; raises KafkaError."""
        path = acls.path_of(pattern)
        if not all(map(paths.is_name, path.split("/")[1:])):
            raise error_of(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper cannot keep a list for {pattern.name!r}"
            )
        async with self._turn:
            for _ in range(WRITES_MAX):
                znode = await self._zookeeper.get(path)
                try:
                    before: Entries = frozenset() if znode is None else acls.decode_entries(path, znode.data)
                except paths.MalformedZnodeError as error:
                    raise error_of(
                        ErrorCode.UNKNOWN_SERVER_ERROR, f"{error}: correct it or delete it"
                    ) from error
                after = change(before)
                try:
                    await self._write(path, znode, after)
                except (NoZnodeError, ZnodeExistsError, ZnodeVersionError):
                    await asyncio.sleep(RETRY_DELAY_S)
                    continue
                self.authorizer.put(pattern, after)
                break
            else:
                raise error_of(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{path} was changed by others {WRITES_MAX} times: try again",
                )
        if after != before:
            logger.info("access control list changed", resource=_told(pattern), entries=len(after))
            await self._zookeeper.create(
                f"{acls.CHANGES[pattern.type]}/{acls.CHANGE_PREFIX}",
                acls.encode_change(pattern),
                sequence=True,
            )

    async def _write(self, path: str, znode: Znode | None, entries: Entries) -> None:
        if not entries:
            if znode is not None:
                await self._zookeeper.delete(path, znode.version)
        elif znode is None:
            await self._zookeeper.create(path, acls.encode_entries(entries))
        else:
            await self._zookeeper.set(path, acls.encode_entries(entries), znode.version)

    async def _notified(self, pattern_type: PatternType, names: list[str]) -> None:
        folder = acls.CHANGES[pattern_type]
        places = [f"{folder}/{name}" for name in names]
        new = [place for place in places if place not in self._seen]
        gone = [place for place in self._seen if place.startswith(f"{folder}/") and place not in places]
        for place in gone:
            del self._seen[place]
        changed: dict[Pattern, None] = {}
        for place, znode in zip(new, await self._zookeeper.get_many(new), strict=True):
            if znode is not None:
                self._seen[place] = znode.created_ms
                changed.update(dict.fromkeys(understood([znode], partial(acls.decode_change, pattern_type))))
        await self._read(list(changed))
        for pattern in changed:
            logger.info("access control list read again", resource=_told(pattern))
        await self._purge()

    async def _purge(self) -> None:
        """Every broker had the time to see what is this old."""
        oldest_ms = self._clock.now_ms() - NOTIFICATION_LIFE_MS
        for place in [place for place, created_ms in self._seen.items() if created_ms < oldest_ms]:
            await self._zookeeper.delete(place)

    async def _read_all(self) -> None:
        """Whatever is there, and what this broker knew that is not."""
        found: list[Pattern] = []
        for pattern_type, folder in acls.FOLDERS.items():
            for kind_name in await self._zookeeper.children(folder):
                kind = of_title(ResourceType, kind_name)
                if kind not in acls.KINDS or title(kind) != kind_name:
                    logger.warning("access control lists of an unknown kind are passed over", kind=kind_name)
                    continue
                names = await self._zookeeper.children(acls.folder(kind, pattern_type))
                found += [Pattern(kind, name, pattern_type) for name in names]
        await self._read(list(dict.fromkeys([*found, *self.authorizer.lists])))

    async def _read(self, patterns: Iterable[Pattern]) -> None:
        patterns = list(patterns)
        if not patterns:
            return
        async with self._turn:
            znodes = await self._zookeeper.get_many([acls.path_of(pattern) for pattern in patterns])
            for pattern, znode in zip(patterns, znodes, strict=True):
                self.authorizer.put(pattern, _entries(pattern, znode))


def _entries(pattern: Pattern, znode: Znode | None) -> Entries:
    if znode is None:
        return frozenset()
    path = acls.path_of(pattern)
    found = understood([znode], partial(acls.decode_entries, path))
    if not found:
        logger.error(
            "an access control list cannot be read, and all but super users are refused what it is about",
            resource=_told(pattern),
        )
        return UNREADABLE
    return found[0]


def _problem(binding: Binding) -> KafkaError | None:
    """Why no list takes it, in the order in which Kafka looks."""
    pattern, entry = binding
    if pattern.kind is ResourceType.UNKNOWN or pattern.type not in acls.FOLDERS or entry.has_unknown:
        return InvalidRequestError("Failed to create ACL: it has elements that nobody knows.")
    if "/" in pattern.name:
        return InvalidRequestError(f"Failed to create ACL: no resource is called {pattern.name}.")
    return None


def _check_principal(text: str) -> None:
    """Raises the KafkaError of what Kafka fails on."""
    try:
        Principal.parse(text)
    except ValueError as error:
        raise error_of(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error


def _told(pattern: Pattern) -> str:
    return f"{title(pattern.kind)}:{pattern.type.name}:{pattern.name}"


async def _work_failed(error: Exception) -> None:
    if not isinstance(error, ZooKeeperClosedError):
        logger.failure("access control lists could not be read", error)
