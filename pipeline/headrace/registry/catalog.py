"""All subjects, ids, levels and modes, as the records of the topics make them, in the topics' order. Pure.

A record changes the catalog only when it is applied; nothing here decides. What stays true, whatever the topic holds
(records of several registries, of none that knows turns, or what compaction left of them):
- the same records give the same catalog, and no schema that ever had an id is forgotten before it is deleted for good:
  one whose version another schema has taken is `displaced`, and is still found by its id;
- an id belongs to its source: each datacenter's copy of the topic has a prefix and ids of its own;
- a schema may come before what it refers to, since compaction moves what was changed last to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from headrace.registry import schemas
from headrace.registry.records import (
    Change,
    CompatibilityLevel,
    Mode,
    Record,
    SchemaVersion,
    SubjectDeletion,
    Turn,
    encode,
)
from headrace.registry.schemas import InvalidSchemaError, Reference
from headrace.registry.turns import Turns


class Held(NamedTuple):
    """A schema under its id. `normal` is None while something that it refers to is missing."""

    stored: SchemaVersion
    normal: str | None


class Catalog:
    """What the topics say, up to what has been read of them. The registry's own topic has the prefix ""."""

    def __init__(self, prefixes: Iterable[str] = ()) -> None:
        self.levels: dict[str | None, str] = {}
        self.modes: dict[str | None, str] = {}
        self.turns = {prefix: Turns() for prefix in ("", *prefixes)}
        self._versions: dict[str, dict[int, Held]] = {}
        self._displaced: dict[tuple[str, int], Held] = {}
        self._normals: dict[tuple[str, int], dict[str, None]] = {}
        self._id_of_normal: dict[tuple[str, str], int] = {}
        self._deletions: dict[str, int] = {}
        self._late: dict[bytes, Change] = {}
        self._incomplete: dict[tuple[str, int], None] = {}

    # Changes

    def apply(self, record: Record, prefix: str = "", turn: str | None = None) -> str | None:
        """Apply a record read from the topic of a prefix, written in a turn. Returns a finding."""
        turns = self.turns[prefix]
        if isinstance(record, Turn):
            turns.apply(record)
            return None
        is_late = not turns.admit(turn)
        if not prefix:
            key, _ = encode(record)
            self._late.pop(key, None)
            if is_late:
                self._late[key] = record
        if is_late:
            return f"a record of subject {record.subject} came after its writer's turn and is passed over"
        return self._change(_prefixed(record, prefix), prefix)

    def _change(self, record: Change, prefix: str) -> str | None:
        match record:
            case SchemaVersion(text=None):
                self._remove(record, prefix)
            case SchemaVersion():
                return self._put(record, prefix)
            case CompatibilityLevel():
                self._set_level(record, prefix)
            case Mode():
                self._set_mode(record, prefix)
            case SubjectDeletion():
                self._delete(record)
        return None

    def _put(self, record: SchemaVersion, prefix: str) -> str | None:
        assert record.text is not None
        try:
            held = Held(record, self.normal_of(record.text, record.references))
        except InvalidSchemaError as error:
            return f"subject {record.subject} version {record.version} is skipped: {error}"
        finding = self._displace(held, prefix)
        self._versions.setdefault(record.subject, {})[record.version] = held
        if held.normal is None:
            self._incomplete[record.subject, record.version] = None
        else:
            finding = self._identify(held, prefix) or finding
        self._complete()
        return finding

    def _displace(self, held: Held, prefix: str) -> str | None:
        """Keep the schema whose version another one takes, unless it has a version elsewhere."""
        new = held.stored
        known = self._displaced.get((prefix, new.schema_id))
        if known is not None and _is_same(known, held):
            del self._displaced[prefix, new.schema_id]
        old = self._versions.get(new.subject, {}).get(new.version)
        if old is None or (old.stored.schema_id == new.schema_id and _is_same(old, held)):
            return None
        schema_id = old.stored.schema_id
        elsewhere = [each for each in self.with_id(schema_id, prefix) if each.stored is not old.stored]
        if not any(_is_same(each, old) for each in elsewhere):
            self._displaced[prefix, schema_id] = old
        return f"subject {new.subject} version {new.version}: schema {new.schema_id} takes the place of {schema_id}"

    def _identify(self, held: Held, prefix: str) -> str | None:
        assert held.normal is not None
        schema_id = held.stored.schema_id
        self._id_of_normal.setdefault((prefix, held.normal), schema_id)
        normals = self._normals.setdefault((prefix, schema_id), {})
        normals[held.normal] = None
        if len(normals) > 1:
            self._forget_deleted(schema_id, prefix)
        if len(normals) == 1:
            return None
        first, other = list(normals)[:2]
        return f"Two different schemas have the id {schema_id}: {first:.2000} and {other:.2000}"

    def _forget_deleted(self, schema_id: int, prefix: str) -> None:
        """Let an id that was given anew no longer stand for schemas that are deleted for good."""
        normals = self._normals[prefix, schema_id]
        for normal in normals.keys() - {held.normal for held in self.with_id(schema_id, prefix)}:
            del normals[normal]
            if self._id_of_normal.get((prefix, normal)) == schema_id:
                del self._id_of_normal[prefix, normal]

    def _complete(self) -> None:
        """Identify schemas that came before what they refer to, as far as it is there now."""
        is_changed = bool(self._incomplete)
        while is_changed:
            is_changed = False
            for subject, version in list(self._incomplete):
                stored = self._versions[subject][version].stored
                normal = self.normal_of(str(stored.text), stored.references)
                if normal is not None:
                    is_changed = True
                    del self._incomplete[subject, version]
                    held = self._versions[subject][version] = Held(stored, normal)
                    self._identify(held, self.prefix_of(subject))

    def _remove(self, record: SchemaVersion, prefix: str) -> None:
        versions = self._versions.get(record.subject, {})
        versions.pop(record.version, None)
        if not versions:
            self._versions.pop(record.subject, None)
        self._incomplete.pop((record.subject, record.version), None)
        for schema_id in [
            schema_id
            for (scope, schema_id), held in self._displaced.items()
            if scope == prefix
            and (held.stored.subject, held.stored.version) == (record.subject, record.version)
        ]:
            del self._displaced[prefix, schema_id]

    def _set_level(self, record: CompatibilityLevel, prefix: str) -> None:
        if prefix and record.subject is None:
            return
        if record.level is None:
            self.levels.pop(record.subject, None)
        else:
            self.levels[record.subject] = record.level

    def _set_mode(self, record: Mode, prefix: str) -> None:
        """Note a mode of the registry's own topic; what comes from other datacenters is read-only whatever theirs is."""
        if prefix:
            return
        if record.mode is None:
            self.modes.pop(record.subject, None)
        else:
            self.modes[record.subject] = record.mode

    def _delete(self, record: SubjectDeletion) -> None:
        if record.version is None:
            self._deletions.pop(record.subject, None)
            return
        self._deletions[record.subject] = record.version
        versions = self._versions.get(record.subject, {})
        for version, held in versions.items():
            if version <= record.version:
                versions[version] = held._replace(stored=replace(held.stored, deleted=True))

    # Reads

    @property
    def needs_repair(self) -> bool:
        """True when compaction of the registry's own topic would lose something: see `repairs`."""
        return bool(self._late) or any(prefix == "" for prefix, _ in self._displaced)

    def repairs(self) -> tuple[Change, ...]:
        """Return the records that make the last one of every key the one that counts.

        A late record gets what its key really holds after it; a displaced schema gets a version, deleted softly, so that
        no subject's latest version changes.
        """
        found: list[Change] = [self._current(record) for record in self._late.values()]
        next_version: dict[str, int] = {}
        for (prefix, _), held in self._displaced.items():
            if prefix:
                continue
            subject = held.stored.subject
            version = next_version.get(subject, self.next_version(subject))
            next_version[subject] = version + 1
            found.append(replace(held.stored, version=version, deleted=True))
        return tuple(found)

    def _current(self, record: Change) -> Change:
        match record:
            case SchemaVersion():
                held = self.versions(record.subject).get(record.version)
                return held.stored if held else SchemaVersion(subject=record.subject, version=record.version)
            case CompatibilityLevel():
                return CompatibilityLevel(subject=record.subject, level=self.levels.get(record.subject))
            case Mode():
                return Mode(subject=record.subject, mode=self.modes.get(record.subject))
            case SubjectDeletion():
                return SubjectDeletion(subject=record.subject, version=self._deletions.get(record.subject))

    def subjects(self) -> list[str]:
        return sorted(self._versions)

    def versions(self, subject: str) -> dict[int, Held]:
        """Return the subject's versions, those that are deleted softly as well."""
        return self._versions.get(subject, {})

    def live(self, subject: str) -> list[Held]:
        """Return the versions that are not deleted, in order."""
        versions = self.versions(subject)
        return [versions[number] for number in sorted(versions) if not versions[number].stored.deleted]

    def next_version(self, subject: str) -> int:
        return max(self.versions(subject), default=0) + 1

    def all_versions(self) -> Iterator[Held]:
        for subject in sorted(self._versions):
            yield from self._versions[subject].values()

    def with_id(self, schema_id: int, prefix: str | None = None) -> list[Held]:
        """Return what has an id, of one source or of all; a displaced schema comes last."""
        found = [
            held
            for held in self.all_versions()
            if held.stored.schema_id == schema_id
            and (prefix is None or self.prefix_of(held.stored.subject) == prefix)
        ]
        displaced = [
            held
            for (scope, number), held in self._displaced.items()
            if number == schema_id and (prefix is None or scope == prefix)
        ]
        return found + displaced

    def is_displaced(self, held: Held) -> bool:
        return self.versions(held.stored.subject).get(held.stored.version) is not held

    def id_of(self, normal: str) -> int | None:
        """Return the id of a schema that the registry's own topic has, when the id means it alone."""
        schema_id = self._id_of_normal.get(("", normal))
        return schema_id if schema_id is None or len(self._normals["", schema_id]) == 1 else None

    def stands_for_another(self, schema_id: int, normal: str) -> bool:
        """Say whether an id of the registry's own topic stands for another schema that is not deleted for good."""
        return any(held.normal != normal for held in self.with_id(schema_id, ""))

    def is_taken(self, schema_id: int, normal: str) -> bool:
        """Say whether an id of the registry's own topic stands for another schema, or ever did."""
        return any(known != normal for known in self._normals.get(("", schema_id), ()))

    def prefix_of(self, subject: str) -> str:
        """Return the prefix of the source that a subject comes from, the longest that fits."""
        return max((prefix for prefix in self.turns if subject.startswith(prefix)), key=len)

    def normal_of(self, text: str, references: tuple[Reference, ...]) -> str | None:
        """Return a schema's normal form, None while something that it refers to is missing.

        Raises:
            InvalidSchemaError: the text is no JSON.
        """
        own = schemas.normal_form(text, {})
        referenced: dict[str, str] = {}
        for each in references:
            versions = self.versions(each.subject)
            held = versions.get(max(versions, default=0) if each.version == -1 else each.version)
            if held is None or held.normal is None:
                return None
            referenced[each.name] = held.normal
        return schemas.normal_form(text, referenced) if referenced else own


def _is_same(one: Held, other: Held) -> bool:
    if one.normal is not None and other.normal is not None:
        return one.normal == other.normal
    return (one.stored.text, one.stored.references) == (other.stored.text, other.stored.references)


def _prefixed(record: Change, prefix: str) -> Change:
    if not prefix:
        return record
    if isinstance(record, SchemaVersion):
        references = tuple(replace(each, subject=prefix + each.subject) for each in record.references)
        return replace(record, subject=prefix + record.subject, references=references)
    if isinstance(record, CompatibilityLevel | Mode) and record.subject is None:
        return record
    return replace(record, subject=f"{prefix}{record.subject}")
