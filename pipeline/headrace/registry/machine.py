"""The registry's state machine: what requests decide and what records change. Pure.

`decide_*` returns the records to append and the answer, and changes nothing; `apply` alone changes memory,
from the records as they are read back from the topic. Reads raise or return at once. What stays true:
- a version means one schema until it is deleted for good, and is never below one that is there;
- one id never stands for two schemas: a second one is refused, naming both;
- subjects that came from another datacenter's topic are read-only and bear its name as prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.registry import errors, schemas
from headrace.registry.records import CompatibilityLevel, Record, SchemaVersion, SubjectDeletion
from headrace.registry.schemas import LEVELS, InvalidSchemaError, Reference

DEFAULT_LEVEL: Final = "BACKWARD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Records to append, and the answer once they have been read back."""

    records: tuple[Record, ...]
    answer: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A schema as a client sends it."""

    text: str
    references: tuple[Reference, ...] = ()


class Machine:
    """All subjects of one registry; `schema_id` is replaced only by tests."""

    def __init__(self, schema_id: Callable[[str], int] = schemas.schema_id) -> None:
        self._schema_id = schema_id
        self._subjects: dict[str, dict[int, SchemaVersion]] = {}
        self._normal_of_id: dict[int, str] = {}
        self._id_of_normal: dict[str, int] = {}
        self._conflicts: dict[int, str] = {}
        self._levels: dict[str | None, str] = {}
        self._read_only_prefixes: set[str] = set()

    # Changes

    def apply(self, record: Record, prefix: str = "") -> str | None:
        """Apply a record read from the topic; a prefix marks another datacenter's. Returns a finding."""
        if prefix:
            self._read_only_prefixes.add(prefix)
            if record.subject is None:
                return None
            record = _prefixed(record, prefix)
        match record:
            case SchemaVersion():
                return self._apply_version(record)
            case CompatibilityLevel(level=None):
                self._levels.pop(record.subject, None)
            case CompatibilityLevel():
                assert record.level is not None
                self._levels[record.subject] = record.level
            case SubjectDeletion():
                self._apply_deletion(record)
        return None

    def _apply_version(self, record: SchemaVersion) -> str | None:
        if record.text is None:
            versions = self._subjects.get(record.subject, {})
            versions.pop(record.version, None)
            if not versions:
                self._subjects.pop(record.subject, None)
            return None
        try:
            normal = self._normal_form(record.text, record.references)
        except (InvalidSchemaError, errors.RegistryError) as error:
            return f"subject {record.subject} version {record.version} is skipped: {error}"
        known = self._normal_of_id.setdefault(record.schema_id, normal)
        if known != normal:
            self._conflicts[record.schema_id] = _conflict(record.schema_id, known, normal)
            return self._conflicts[record.schema_id]
        self._id_of_normal.setdefault(normal, record.schema_id)
        self._subjects.setdefault(record.subject, {})[record.version] = record
        return None

    def _apply_deletion(self, record: SubjectDeletion) -> None:
        versions = self._subjects.get(record.subject, {})
        for version, stored in versions.items():
            if record.version is not None and version <= record.version:
                versions[version] = replace(stored, deleted=True)

    # Decisions

    def decide_register(self, subject: str, submitted: Submitted) -> Decision:
        """Register a schema as the subject's next version, unless the subject has it already."""
        self._refuse_read_only(subject)
        normal, known = self._checked(submitted)
        for stored in self._live(subject):
            if self._normal_of_id.get(stored.schema_id) == normal:
                return Decision(records=(), answer={"id": stored.schema_id})
        level = self.level_of(subject)
        live = self._live(subject)
        if live and (reasons := self._incompatibilities(submitted, live[-1], level)):
            raise errors.incompatible([*reasons, f"level {level}, version {live[-1].version}"])
        schema_id = known if known is not None else self._new_id(normal)
        record = SchemaVersion(
            subject=subject,
            version=max(self._subjects.get(subject, {0: None})) + 1,
            schema_id=schema_id,
            text=submitted.text,
            references=submitted.references,
        )
        return Decision(records=(record,), answer={"id": schema_id})

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
        versions = self._subjects.get(subject)
        if not versions:
            raise errors.subject_not_found(subject)
        live = self._live(subject)
        if live and permanent:
            raise errors.subject_not_soft_deleted(subject)
        if not live and not permanent:
            raise errors.subject_soft_deleted(subject)
        for stored in versions.values():
            self._refuse_referenced(stored)
        if not permanent:
            records: tuple[Record, ...] = (SubjectDeletion(subject=subject, version=live[-1].version),)
            if subject in self._levels:
                records = (*records, CompatibilityLevel(subject=subject, level=None))
            return Decision(records=records, answer=[stored.version for stored in live])
        tombstones = [SchemaVersion(subject=subject, version=version) for version in sorted(versions)]
        records = (*tombstones, SubjectDeletion(subject=subject, version=None))
        return Decision(records=records, answer=sorted(versions))

    def decide_set_level(self, subject: str | None, level: object) -> Decision:
        """Set the compatibility level of a subject, or the global one."""
        if subject is not None:
            self._refuse_read_only(subject)
        if level not in LEVELS:
            raise errors.invalid_level(level, LEVELS)
        assert isinstance(level, str)
        record = CompatibilityLevel(subject=subject, level=level)
        return Decision(records=(record,), answer={"compatibility": level})

    def decide_delete_level(self, subject: str | None) -> Decision:
        """Return a subject to the global level, or the global level to its default."""
        if subject is not None and subject not in self._levels:
            raise errors.subject_not_found(subject)
        answer = {"compatibilityLevel": self._levels.get(subject, DEFAULT_LEVEL)}
        return Decision(records=(CompatibilityLevel(subject=subject, level=None),), answer=answer)

    # Reads

    def subjects(self, *, deleted: bool = False, prefix: str = "") -> list[str]:
        """Return the names of subjects that have versions; with `deleted`, soft-deleted ones count."""
        names = self._subjects if deleted else [name for name in self._subjects if self._live(name)]
        return sorted(name for name in names if name.startswith(prefix))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the subject's versions in order."""
        found = (
            sorted(self._subjects.get(subject, ()))
            if deleted
            else [each.version for each in self._live(subject)]
        )
        if not found:
            raise errors.subject_not_found(subject)
        return found

    def version(self, subject: str, version: str, *, deleted: bool = False) -> dict[str, Any]:
        """Return a version by number or `latest`."""
        return _described(self._version(subject, version, deleted=deleted))

    def lookup(self, subject: str, submitted: Submitted, *, deleted: bool = False) -> dict[str, Any]:
        """Return the version under which a subject has this schema."""
        versions = self._subjects.get(subject)
        if not versions or not (deleted or self._live(subject)):
            raise errors.subject_not_found(subject)
        normal, _ = self._checked(submitted)
        for stored in sorted(versions.values(), key=lambda each: -each.version):
            if (deleted or not stored.deleted) and self._normal_of_id.get(stored.schema_id) == normal:
                return _described(stored)
        raise errors.schema_not_found()

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return the schema with this id, whatever its subjects."""
        if schema_id in self._conflicts:
            raise errors.not_permitted(self._conflicts[schema_id])
        stored = next(iter(self._with_id(schema_id)), None)
        if stored is None:
            raise errors.schema_not_found(schema_id)
        answer = _described(stored)
        return {key: answer[key] for key in ("schema", "references") if key in answer}

    def usages(self, schema_id: int, *, deleted: bool = False) -> list[dict[str, Any]]:
        """Return the subjects and versions that have the schema with this id."""
        found = self._with_id(schema_id)
        if not found:
            raise errors.schema_not_found(schema_id)
        return [
            {"subject": each.subject, "version": each.version}
            for each in found
            if deleted or not each.deleted
        ]

    def referenced_by(self, subject: str, version: str) -> list[int]:
        """Return the ids of the schemas that refer to a version."""
        return self._referrers(self._version(subject, version, deleted=True))

    def level_of(self, subject: str | None) -> str:
        """Return the level that holds for a subject."""
        return self._levels.get(subject) or self._levels.get(None, DEFAULT_LEVEL)

    def level(self, subject: str | None, *, default_to_global: bool = False) -> str:
        """Return the level set for a subject itself (or the global one)."""
        if subject is not None and subject not in self._levels and not default_to_global:
            raise errors.no_subject_level(subject)
        return self.level_of(subject)

    def mode(self, subject: str | None, *, default_to_global: bool = False) -> str:
        """Return READONLY for subjects of another datacenter, READWRITE globally."""
        if subject is not None and self._is_read_only(subject):
            return "READONLY"
        if subject is not None and not default_to_global:
            raise errors.no_subject_mode(subject)
        return "READWRITE"

    def compatibility(self, subject: str, version: str | None, submitted: Submitted) -> list[str]:
        """Return why a schema may not follow a version (None: the latest there is); empty when it may."""
        self._checked(submitted)
        if version is not None:
            return self._incompatibilities(submitted, self._version(subject, version), self.level_of(subject))
        live = self._live(subject)
        return self._incompatibilities(submitted, live[-1], self.level_of(subject)) if live else []

    # Helpers

    def _live(self, subject: str) -> list[SchemaVersion]:
        versions = self._subjects.get(subject, {})
        return [versions[number] for number in sorted(versions) if not versions[number].deleted]

    def _version(self, subject: str, version: str, *, deleted: bool = False) -> SchemaVersion:
        number = _version_number(version)
        versions = self._subjects.get(subject, {})
        live = self._live(subject)
        if not versions or not (live or deleted):
            raise errors.subject_not_found(subject)
        if number == -1:
            return live[-1] if live else versions[max(versions)]
        stored = versions.get(number)
        if stored is None or (stored.deleted and not deleted):
            raise errors.version_not_found(number)
        return stored

    def _with_id(self, schema_id: int) -> list[SchemaVersion]:
        return [
            stored
            for subject in sorted(self._subjects)
            for stored in self._subjects[subject].values()
            if stored.schema_id == schema_id
        ]

    def _referrers(self, stored: SchemaVersion) -> list[int]:
        return sorted(
            {
                other.schema_id
                for versions in self._subjects.values()
                for other in versions.values()
                for reference in other.references
                if (reference.subject, reference.version) == (stored.subject, stored.version)
                and not other.deleted
            }
        )

    def _refuse_referenced(self, stored: SchemaVersion) -> None:
        if referrers := self._referrers(stored):
            raise errors.still_referenced(stored.subject, stored.version, referrers)

    def _is_read_only(self, subject: str) -> bool:
        return any(subject.startswith(prefix) for prefix in self._read_only_prefixes)

    def _refuse_read_only(self, subject: str) -> None:
        if self._is_read_only(subject):
            raise errors.not_permitted(
                f"Subject '{subject}' is read-only here: it comes from another datacenter; register it there"
            )

    def _checked(self, submitted: Submitted) -> tuple[str, int | None]:
        """Return the normal form of a valid schema, and its id when it is known."""
        try:
            schemas.parse(submitted.text, self._referenced(submitted.references))
            normal = self._normal_form(submitted.text, submitted.references)
        except InvalidSchemaError as error:
            raise errors.invalid_schema(str(error)) from error
        return normal, self._id_of_normal.get(normal)

    def _new_id(self, normal: str) -> int:
        schema_id = self._schema_id(normal)
        known = self._normal_of_id.get(schema_id)
        if known is not None and known != normal:
            raise errors.not_permitted(_conflict(schema_id, known, normal))
        return schema_id

    def _normal_form(self, text: str, references: tuple[Reference, ...]) -> str:
        versions = {
            each.name: self._version(each.subject, str(each.version), deleted=True) for each in references
        }
        referenced = {name: self._normal_of_id[stored.schema_id] for name, stored in versions.items()}
        return schemas.normal_form(text, referenced)

    def _referenced(self, references: tuple[Reference, ...], depth: int = 0) -> tuple[str, ...]:
        """Return the texts that a schema needs, innermost first, each once."""
        if depth > 32:
            raise errors.invalid_schema("references are nested more than 32 deep")
        texts: dict[str, None] = {}
        for reference in references:
            try:
                stored = self._version(reference.subject, str(reference.version), deleted=True)
            except errors.RegistryError as error:
                raise errors.invalid_schema(f"reference {reference.name!r}: {error.message}") from error
            texts.update(dict.fromkeys(self._referenced(stored.references, depth + 1)))
            texts[str(stored.text)] = None
        return tuple(texts)

    def _incompatibilities(self, submitted: Submitted, stored: SchemaVersion, level: str) -> list[str]:
        try:
            new = schemas.parse(submitted.text, self._referenced(submitted.references))
            old = schemas.parse(str(stored.text), self._referenced(stored.references))
        except InvalidSchemaError as error:
            raise errors.invalid_schema(str(error)) from error
        return schemas.incompatibilities(new, old, level)


def _prefixed(record: Record, prefix: str) -> Record:
    if isinstance(record, SchemaVersion):
        references = tuple(replace(each, subject=prefix + each.subject) for each in record.references)
        return replace(record, subject=prefix + record.subject, references=references)
    return replace(record, subject=f"{prefix}{record.subject}")


def _conflict(schema_id: int, known: str, other: str) -> str:
    return f"Two different schemas have the id {schema_id}: {known:.2000} and {other:.2000}"


def _described(stored: SchemaVersion) -> dict[str, Any]:
    answer: dict[str, Any] = {"subject": stored.subject, "version": stored.version, "id": stored.schema_id}
    if stored.references:
        answer["references"] = [reference.as_json() for reference in stored.references]
    return {**answer, "schema": stored.text}


def _version_number(version: str) -> int:
    if version in ("latest", "-1"):
        return -1
    if not version.isascii() or not version.isdigit() or len(version) > 10 or not 1 <= int(version) < 2**31:
        raise errors.invalid_version(version)
    return int(version)
