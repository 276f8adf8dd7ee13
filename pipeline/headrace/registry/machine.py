"""What requests decide, and what they read, over the catalog. Pure.

`decide_*` returns the records to append and the answer, and changes nothing; `apply` alone changes the catalog, from
the records as they are read back from the topic. Reads raise or return at once. What stays true:
- a version means one schema until it is deleted for good, and is never below one that is there;
- a new id never stands for two schemas; an old one that does is told by the subject it is asked for;
- subjects that came from another datacenter's topic are read-only and bear its name as prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.registry import errors, modes, schemas
from headrace.registry.catalog import Catalog, Held
from headrace.registry.records import (
    Change,
    CompatibilityLevel,
    Mode,
    Record,
    SchemaVersion,
    SubjectDeletion,
)
from headrace.registry.schemas import LEVELS, TRANSITIVE, InvalidSchemaError, Reference
from headrace.registry.turns import Turns

DEFAULT_LEVEL: Final = "BACKWARD"
ID_MAX: Final = 2**31 - 1
LATEST: Final = -1
"""What requests call a subject's newest version by, as a number."""
LATEST_NAMES: Final = ("latest", str(LATEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Records to append, and the answer once they have been read back."""

    records: tuple[Change, ...]
    answer: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A schema as a client sends it."""

    text: str
    references: tuple[Reference, ...] = ()


class Machine:
    """One registry; `prefixes` are of the topics of other datacenters. `schema_id` is replaced only by tests."""

    def __init__(
        self, prefixes: Iterable[str] = (), *, schema_id: Callable[[str], int] = schemas.schema_id
    ) -> None:
        self._schema_id = schema_id
        self._catalog = Catalog(prefixes)

    @property
    def turns(self) -> Turns:
        """The turns of the registry's own topic."""
        return self._catalog.turns[""]

    @property
    def needs_repair(self) -> bool:
        return self._catalog.needs_repair

    def apply(self, record: Record, prefix: str = "", turn: str | None = None) -> str | None:
        """Apply a record read from the topic of a prefix, written in a turn. Returns a finding."""
        return self._catalog.apply(record, prefix, turn)

    # Decisions

    def decide_register(self, subject: str, submitted: Submitted) -> Decision:
        """Register a schema as the subject's next version, unless the subject has it already."""
        self._refuse_read_only(subject)
        if self.mode_of(subject) in modes.IMPORTING:
            raise errors.not_permitted(
                f"Subject '{subject}' is in mode {modes.IMPORT}: give the schema's id, or set {modes.READWRITE}"
            )
        submitted = self._pinned(submitted)
        normal = self._checked(submitted)
        live = self._catalog.live(subject)
        for held in live:
            if held.normal == normal:
                return Decision(records=(), answer={"id": held.stored.schema_id})
        if reasons := self._refusals(subject, submitted, live):
            raise errors.incompatible(reasons)
        known = self._catalog.id_of(normal)
        schema_id = known if known is not None else self._new_id(normal)
        record = SchemaVersion(
            subject=subject,
            version=self._catalog.next_version(subject),
            schema_id=schema_id,
            text=submitted.text,
            references=submitted.references,
        )
        return Decision(records=(record,), answer={"id": schema_id})

    def decide_import(
        self, subject: str, submitted: Submitted, *, schema_id: int, version: int | None
    ) -> Decision:
        """Register a schema under the id, and the version, that another registry gave it (None: the next version)."""
        self._refuse_read_only(subject)
        if self.mode_of(subject) not in modes.IMPORTING:
            raise errors.not_permitted(
                f"Subject '{subject}' is not in mode {modes.IMPORT}: leave out the id, or set that mode"
            )
        submitted = self._pinned(submitted)
        normal = self._checked(submitted)
        answer = {"id": schema_id}
        for held in self._catalog.live(subject):
            is_same = (held.normal, held.stored.schema_id) == (normal, schema_id)
            if is_same and version in (None, held.stored.version):
                return Decision(records=(), answer=answer)
        number = version or self._catalog.next_version(subject)
        self._refuse_overwriting(subject, number, schema_id, normal)
        record = SchemaVersion(
            subject=subject,
            version=number,
            schema_id=schema_id,
            text=submitted.text,
            references=submitted.references,
        )
        return Decision(records=(record,), answer=answer)

    def decide_delete_version(self, subject: str, version: str, *, permanent: bool) -> Decision:
        """Soft-delete a version, or remove a soft-deleted one for good."""
        self._refuse_read_only(subject)
        stored = self._version(subject, version, deleted=True)
        if permanent and not stored.deleted:
            raise errors.version_not_soft_deleted(subject, stored.version)
        if stored.deleted and not permanent:
            raise errors.version_soft_deleted(subject, stored.version)
        self._refuse_referenced(stored)
        tombstone = SchemaVersion(subject=subject, version=stored.version)
        record = tombstone if permanent else replace(stored, deleted=True)
        return Decision(records=(record,), answer=stored.version)

    def decide_delete_subject(self, subject: str, *, permanent: bool) -> Decision:
        """Soft-delete all versions of a subject, or remove a soft-deleted subject for good."""
        self._refuse_read_only(subject)
        versions = self._catalog.versions(subject)
        if not versions:
            raise errors.subject_not_found(subject)
        live = [held.stored for held in self._catalog.live(subject)]
        if live and permanent:
            raise errors.subject_not_soft_deleted(subject)
        if not live and not permanent:
            raise errors.subject_soft_deleted(subject)
        for held in versions.values():
            self._refuse_referenced(held.stored)
        if not permanent:
            records: tuple[Change, ...] = (SubjectDeletion(subject=subject, version=live[-1].version),)
            if subject in self._catalog.levels:
                records = (*records, CompatibilityLevel(subject=subject, level=None))
            return Decision(records=records, answer=[stored.version for stored in live])
        records = self._tombstones(subject)
        if subject in self._catalog.modes:
            records = (*records, Mode(subject=subject, mode=None))
        return Decision(records=records, answer=sorted(versions))

    def decide_set_level(self, subject: str | None, level: object) -> Decision:
        """Set the compatibility level of a subject, or the global one."""
        self._refuse_read_only(subject)
        if level not in LEVELS:
            raise errors.invalid_level(level, LEVELS)
        assert isinstance(level, str)
        record = CompatibilityLevel(subject=subject, level=level)
        return Decision(records=(record,), answer={"compatibility": level})

    def decide_delete_level(self, subject: str | None) -> Decision:
        """Return a subject to the global level, or the global level to its default."""
        self._refuse_read_only(subject)
        if subject is not None and subject not in self._catalog.levels:
            raise errors.subject_not_found(subject)
        answer = {"compatibilityLevel": self._catalog.levels.get(subject, DEFAULT_LEVEL)}
        return Decision(records=(CompatibilityLevel(subject=subject, level=None),), answer=answer)

    def decide_set_mode(self, subject: str | None, mode: object, *, force: bool = False) -> Decision:
        """Set the mode of a subject, or the global one; IMPORT only where nothing is registered, or by force."""
        if subject is not None:
            self._refuse_foreign(subject)
        name = mode.upper() if isinstance(mode, str) else mode
        if name not in modes.SETTABLE:
            raise errors.invalid_mode(mode, modes.SETTABLE)
        assert isinstance(name, str)
        is_begun = name == modes.IMPORT and self.mode_of(subject) != modes.IMPORT
        removed = self._cleared(subject) if is_begun and not force else ()
        return Decision(records=(*removed, Mode(subject=subject, mode=name)), answer={"mode": name})

    def decide_delete_mode(self, subject: str | None) -> Decision:
        """Return a subject to the global mode, or the global mode to its default."""
        if subject is not None and subject not in self._catalog.modes:
            raise errors.subject_not_found(subject)
        answer = {"mode": self._catalog.modes.get(subject, modes.READWRITE)}
        return Decision(records=(Mode(subject=subject, mode=None),), answer=answer)

    def decide_repair(self) -> Decision:
        """Write anew what compaction would lose (see `Catalog.repairs`)."""
        return Decision(records=self._catalog.repairs(), answer=None)

    # Reads

    def subjects(self, *, deleted: bool = False, deleted_only: bool = False, prefix: str = "") -> list[str]:
        """Return the names of subjects that have versions; `deleted` and `deleted_only` as in `versions`."""
        return [
            name
            for name in self._catalog.subjects()
            if name.startswith(prefix) and self._numbers(name, deleted=deleted, deleted_only=deleted_only)
        ]

    def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        """Return the subject's versions in order; with `deleted` soft-deleted ones as well, or these alone."""
        if not self._numbers(subject, deleted=deleted or deleted_only):
            raise errors.subject_not_found(subject)
        return self._numbers(subject, deleted=deleted, deleted_only=deleted_only)

    def schemas(
        self, *, deleted: bool = False, prefix: str = "", latest_only: bool = False
    ) -> list[dict[str, Any]]:
        """Return all versions of subjects, or of each the latest, in the order of subjects and versions."""
        return [
            _described(self._catalog.versions(subject)[version].stored)
            for subject in self.subjects(deleted=deleted, prefix=prefix)
            for version in self.versions(subject, deleted=deleted)[-1 if latest_only else 0 :]
        ]

    def version(self, subject: str, version: str, *, deleted: bool = False) -> dict[str, Any]:
        """Return a version by number or `latest`."""
        return _described(self._version(subject, version, deleted=deleted))

    def lookup(self, subject: str, submitted: Submitted, *, deleted: bool = False) -> dict[str, Any]:
        """Return the version under which a subject has this schema."""
        versions = self._catalog.versions(subject)
        if not versions or not (deleted or self._catalog.live(subject)):
            raise errors.subject_not_found(subject)
        normal = self._checked(submitted)
        for held in sorted(versions.values(), key=lambda each: -each.stored.version):
            if (deleted or not held.stored.deleted) and held.normal == normal:
                return _described(held.stored)
        raise errors.schema_not_found()

    def schema(self, schema_id: int, subject: str = "") -> dict[str, Any]:
        """Return the schema with this id, as the source of a subject means it.

        A subject need not exist: its prefix says which datacenter's ids are meant. Without a prefix the registry's own ids
        come first. An id that stands for different schemas even so is refused.
        """
        prefix = self._catalog.prefix_of(subject)
        found = self._catalog.with_id(schema_id, prefix)
        found = [held for held in found if held.stored.subject == subject][-1:] or found
        if not found and not prefix:
            found = self._catalog.with_id(schema_id)
        if not found:
            raise errors.schema_not_found(schema_id)
        if len({held.normal or held.stored.text for held in found}) > 1:
            raise errors.ambiguous_id(schema_id, sorted({held.stored.subject for held in found}))
        answer = _described(found[0].stored)
        return {key: answer[key] for key in ("schema", "references") if key in answer}

    def usages(self, schema_id: int, *, deleted: bool = False) -> list[dict[str, Any]]:
        """Return the subjects and versions that have the schema with this id."""
        found = self._catalog.with_id(schema_id)
        if not found:
            raise errors.schema_not_found(schema_id)
        return [
            {"subject": held.stored.subject, "version": held.stored.version}
            for held in found
            if not self._catalog.is_displaced(held) and (deleted or not held.stored.deleted)
        ]

    def referenced_by(self, subject: str, version: str) -> list[int]:
        """Return the ids of the schemas that refer to a version."""
        return self._referrers(self._version(subject, version, deleted=True))

    def level_of(self, subject: str | None) -> str:
        """Return the level that holds for a subject."""
        levels = self._catalog.levels
        return levels.get(subject) or levels.get(None, DEFAULT_LEVEL)

    def level(self, subject: str | None, *, default_to_global: bool = False) -> str:
        """Return the level set for a subject itself (or the global one)."""
        if subject is not None and subject not in self._catalog.levels and not default_to_global:
            raise errors.no_subject_level(subject)
        return self.level_of(subject)

    def mode_of(self, subject: str | None) -> str:
        """Return the mode that holds for a subject: READONLY for those of another datacenter."""
        is_foreign = subject is not None and self._is_foreign(subject)
        return modes.READONLY if is_foreign else modes.mode_of(self._catalog.modes, subject)

    def mode(self, subject: str | None, *, default_to_global: bool = False) -> str:
        """Return the mode set for a subject itself (or the global one)."""
        is_set = subject is None or subject in self._catalog.modes or self._is_foreign(subject)
        if not is_set and not default_to_global:
            raise errors.no_subject_mode(str(subject))
        return self.mode_of(subject)

    def compatibility(self, subject: str, version: str | None, submitted: Submitted) -> list[str]:
        """Return why a schema may not follow a version (None: those that the level is about); empty when it may."""
        self._checked(submitted)
        if version is None or (version in LATEST_NAMES and not self._catalog.live(subject)):
            return self._refusals(subject, submitted, self._catalog.live(subject))
        return self._incompatibilities(submitted, self._version(subject, version), self.level_of(subject))

    # Helpers

    def _numbers(self, subject: str, *, deleted: bool, deleted_only: bool = False) -> list[int]:
        return sorted(
            number
            for number, held in self._catalog.versions(subject).items()
            if (held.stored.deleted if deleted_only else deleted or not held.stored.deleted)
        )

    def _version(self, subject: str, version: str, *, deleted: bool = False) -> SchemaVersion:
        number = _version_number(version)
        versions = self._catalog.versions(subject)
        live = self._catalog.live(subject)
        if not versions or not (live or deleted):
            raise errors.subject_not_found(subject)
        if number == LATEST:
            return live[-1].stored if live else versions[max(versions)].stored
        held = versions.get(number)
        if held is None or (held.stored.deleted and not deleted):
            raise errors.version_not_found(number)
        return held.stored

    def _referrers(self, stored: SchemaVersion) -> list[int]:
        return sorted(
            {
                other.schema_id
                for other, _ in self._catalog.all_versions()
                for reference in other.references
                if (reference.subject, reference.version) == (stored.subject, stored.version)
                and not other.deleted
            }
        )

    def _refuse_referenced(self, stored: SchemaVersion) -> None:
        if referrers := self._referrers(stored):
            raise errors.still_referenced(stored.subject, stored.version, referrers)

    def _tombstones(self, subject: str) -> tuple[Change, ...]:
        versions = sorted(self._catalog.versions(subject))
        tombstones = [SchemaVersion(subject=subject, version=version) for version in versions]
        return (*tombstones, SubjectDeletion(subject=subject, version=None))

    def _cleared(self, subject: str | None) -> tuple[Change, ...]:
        """Return what removes the soft-deleted versions of a subject, or of all, for good; refuse where others are."""
        own = [name for name in self._catalog.subjects() if not self._is_foreign(name)]
        names = [name for name in own if subject in (None, name)]
        if live := [name for name in names if self._catalog.live(name)]:
            raise errors.not_permitted(
                f"Cannot import, since subject '{live[0]}' has schemas: delete it, or repeat with force=true"
            )
        for held in (held for name in names for held in self._catalog.versions(name).values()):
            self._refuse_referenced(held.stored)
        return tuple(record for name in names for record in self._tombstones(name))

    def _refuse_overwriting(self, subject: str, version: int, schema_id: int, normal: str) -> None:
        if self._catalog.stands_for_another(schema_id, normal):
            raise errors.not_permitted(
                f"The id {schema_id} stands for another schema here: delete that for good first"
            )
        held = self._catalog.versions(subject).get(version)
        if held is not None and (held.normal, held.stored.schema_id) != (normal, schema_id):
            raise errors.not_permitted(
                f"Version {version} of subject '{subject}' is the schema with the id {held.stored.schema_id}: "
                "delete it for good first"
            )

    def _is_foreign(self, subject: str) -> bool:
        """Say whether a subject comes from another datacenter's topic."""
        return bool(self._catalog.prefix_of(subject))

    def _refuse_read_only(self, subject: str | None) -> None:
        if subject is not None:
            self._refuse_foreign(subject)
        if self.mode_of(subject) in modes.READ_ONLY:
            whose = "The registry" if subject is None else f"Subject '{subject}'"
            raise errors.not_permitted(f"{whose} is in mode {modes.READONLY}: set {modes.READWRITE} first")

    def _refuse_foreign(self, subject: str) -> None:
        if self._is_foreign(subject):
            raise errors.not_permitted(
                f"Subject '{subject}' is read-only here: it comes from another datacenter; register it there"
            )

    def _pinned(self, submitted: Submitted) -> Submitted:
        """Return it with the number of each version that it calls the latest: what a schema means never changes."""
        references = tuple(
            replace(each, version=self._reference(each).version) if each.version == LATEST else each
            for each in submitted.references
        )
        return replace(submitted, references=references)

    def _checked(self, submitted: Submitted) -> str:
        """Return the normal form of a valid schema."""
        try:
            schemas.parse(submitted.text, self._referenced(submitted.references))
            normal = self._catalog.normal_of(submitted.text, submitted.references)
        except InvalidSchemaError as error:
            raise errors.invalid_schema(str(error)) from error
        if normal is None:
            raise errors.invalid_reference(submitted.references[0].name, "it refers to a schema that is gone")
        return normal

    def _new_id(self, normal: str) -> int:
        """Return the schema's own id, or the next that stands for no other schema."""
        schema_id = self._schema_id(normal)
        while self._catalog.is_taken(schema_id, normal):
            schema_id = schema_id % ID_MAX + 1
        return schema_id

    def _referenced(self, references: tuple[Reference, ...], depth: int = 0) -> tuple[str, ...]:
        """Return the texts that a schema needs, innermost first, each once."""
        if depth > 32:
            raise errors.invalid_schema("references are nested more than 32 deep")
        texts: dict[str, None] = {}
        for reference in references:
            stored = self._reference(reference)
            texts.update(dict.fromkeys(self._referenced(stored.references, depth + 1)))
            texts[str(stored.text)] = None
        return tuple(texts)

    def _reference(self, reference: Reference) -> SchemaVersion:
        try:
            return self._version(reference.subject, str(reference.version), deleted=True)
        except errors.RegistryError as error:
            raise errors.invalid_reference(reference.name, error.message) from error

    def _refusals(self, subject: str, submitted: Submitted, live: Sequence[Held]) -> list[str]:
        """Return why a schema may not follow the newest of these versions, or one of all where the level says so."""
        level = self.level_of(subject)
        for held in reversed(live if level.endswith(TRANSITIVE) else live[-1:]):
            if reasons := self._incompatibilities(submitted, held.stored, level):
                return [*reasons, f"level {level}, version {held.stored.version}"]
        return []

    def _incompatibilities(self, submitted: Submitted, stored: SchemaVersion, level: str) -> list[str]:
        try:
            new = schemas.parse(submitted.text, self._referenced(submitted.references))
            old = schemas.parse(str(stored.text), self._referenced(stored.references))
        except InvalidSchemaError as error:
            raise errors.invalid_schema(str(error)) from error
        return schemas.incompatibilities(new, old, level)


def _described(stored: SchemaVersion) -> dict[str, Any]:
    answer: dict[str, Any] = {"subject": stored.subject, "version": stored.version, "id": stored.schema_id}
    if stored.references:
        answer["references"] = [reference.as_json() for reference in stored.references]
    return {**answer, "schema": stored.text}


def _version_number(version: str) -> int:
    if version in LATEST_NAMES:
        return LATEST
    if not version.isascii() or not version.isdigit() or len(version) > 10 or not 1 <= int(version) < 2**31:
        raise errors.invalid_version(version)
    return int(version)
