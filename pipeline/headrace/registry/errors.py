"""What the registry refuses: HTTP status, Confluent's error code and one sentence.

Codes: https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations


class RegistryError(Exception):
    """An answer other than success. `code` is Confluent's error code.

    `is_about_input` says that the request can never succeed, whatever other processes have registered meanwhile.
    """

    def __init__(self, status: int, code: int, message: str, *, is_about_input: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.is_about_input = is_about_input


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryError:
    return RegistryError(
        404, 40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found"
    )


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        404, 40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    message = f"Subject '{subject}' was not deleted first before being permanently deleted"
    return RegistryError(404, 40405, message)


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    message = (
        f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    )
    return RegistryError(404, 40406, message)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    message = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RegistryError(404, 40407, message)


def no_subject_level(subject: str) -> RegistryError:
    message = f"Subject '{subject}' does not have subject-level compatibility configured"
    return RegistryError(404, 40408, message)


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(messages: list[str]) -> RegistryError:
    reasons = "; ".join(messages)
    return RegistryError(
        409, 409, f"Schema being registered is incompatible with an earlier schema: {reasons}"
    )


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(422, 42201, f"Invalid schema: {reason}", is_about_input=True)


def invalid_reference(name: str, reason: str) -> RegistryError:
    return RegistryError(422, 42201, f"Invalid schema: reference {name!r}: {reason}")


def invalid_version(version: str) -> RegistryError:
    message = (
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"'
    )
    return RegistryError(422, 42202, message, is_about_input=True)


def invalid_level(level: object, allowed: tuple[str, ...]) -> RegistryError:
    message = f"Invalid compatibility level {level!r}. Valid values are {', '.join(allowed)}"
    return RegistryError(422, 42203, message, is_about_input=True)


def invalid_mode(mode: object, allowed: tuple[str, ...]) -> RegistryError:
    message = f"Invalid mode {mode!r}. Valid values are {', '.join(allowed)}"
    return RegistryError(422, 42204, message, is_about_input=True)


def ambiguous_id(schema_id: int, subjects: list[str]) -> RegistryError:
    return not_permitted(
        f"The id {schema_id} stands for different schemas, of the subjects {', '.join(subjects)}: "
        "add ?subject=NAME to say whose is meant"
    )


def not_permitted(message: str) -> RegistryError:
    return RegistryError(422, 42205, message)


def still_referenced(subject: str, version: int, referrers: list[int]) -> RegistryError:
    message = f"One or more references exist to subject '{subject}' version {version}: schema ids {referrers}"
    return RegistryError(422, 42206, message)


def store_failed(reason: str) -> RegistryError:
    return RegistryError(500, 50001, f"The schema was not stored: {reason}")


def store_timed_out(reason: str) -> RegistryError:
    return RegistryError(500, 50002, f"Whether the change was stored is not known: {reason}; try again")


def not_ready(reason: str) -> RegistryError:
    return RegistryError(503, 50301, f"The registry is not ready: {reason}; try again")
