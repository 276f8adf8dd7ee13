"""How every host is, as a table, and a sentence for each thing that is not well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace_inventory import looks as inventory_looks
from headrace_inventory.addresses import Groups, HostVars
from headrace_views.plan import release_name

HEADINGS = ("host", "service", "state", "since", "restarts", "runs from", "serves")
DISK_FREE_SHARE_MIN, DISK_FREE_MB_MIN = 0.1, 512
"""Below both a disk is told of: a tenth of a large one may be plenty."""
CERTIFICATE_DAYS_MIN = 14
SAID_LINES_MAX = 12


def health(play_hosts: Iterable[str], hostvars: HostVars, groups: Groups) -> dict[str, Any]:
    """What is told of the hosts of a play once each was looked at: a text, and what is not well."""
    play = list(play_hosts)
    looks, answers = inventory_looks.found(play, hostvars), inventory_looks.answers(play, hostvars)
    unasked = inventory_looks.unasked(play, hostvars, groups)
    return {"text": health_text(looks, answers), "problems": health_problems(looks, answers, unasked)}


def health_text(looks: Mapping[str, Mapping[str, Any]], answers: Iterable[Mapping[str, Any]]) -> str:
    """The table, the disks, what is drained, half changed or no more wanted, and what was said of clusters, mirror and audit."""
    disks = [
        f"{host}  {disk['folder']}: {disk['free_mb']:,} of {disk['whole_mb']:,} MB free"
        for host, look in looks.items()
        for disk in look.get("disks", [])
    ]
    drained = [mark["sentence"] for look in looks.values() for mark in look.get("drained", [])]
    unsettled = [
        f"{name} runs a change that has not passed its gates: run the play again that made it."
        for look in looks.values()
        for name in look.get("unsettled", [])
    ]
    orphans = [sentence for look in looks.values() for sentence in look.get("orphans", [])]
    said = [f"{each['name']}: {'well' if each['code'] == 0 else 'not well'}" for each in answers]
    blocks = [
        table(HEADINGS, rows(looks)),
        *("\n".join(each) for each in (disks, drained, unsettled, orphans, said) if each),
    ]
    return "\n\n".join(blocks)


def rows(looks: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for host, look in looks.items():
        if "services" not in look:
            found.append((host, "", "unknown", "", "", "", "does not answer"))
        for service in look.get("services", []):
            found.append(row(service))
    return found


def row(service: Mapping[str, Any]) -> tuple[str, ...]:
    restarts = service["restarts"]
    return (
        service["host"],
        service["name"],
        service["state"],
        duration(service["since_s"]),
        "" if restarts is None else str(restarts),
        release_name(service["release"]),
        "yes" if service["complaint"] is None else "no",
    )


def duration(seconds: int | None) -> str:
    """The two largest units."""
    if seconds is None:
        return ""
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{seconds} s"


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    whole = [tuple(headings), *map(tuple, lines)]
    widths = [max(len(line[column]) for line in whole) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in whole
    )


def health_problems(
    looks: Mapping[str, Mapping[str, Any]], answers: Iterable[Mapping[str, Any]], unasked: Iterable[str] = ()
) -> list[str]:
    """One sentence for each thing that is not well; a drained host's services are stopped on purpose."""
    problems = []
    for host, look in looks.items():
        if "services" not in look:
            problems.append(str(look.get("unanswered") or f"Host {host} was not looked at."))
        else:
            problems += [*service_problems(look), *disk_problems(host, look), *look.get("complaints", [])]
    problems += [
        f"{each['name']} is not well: {last_lines(each['said'])}" for each in answers if each["code"] != 0
    ]
    return problems + [
        f"{name} could not be asked: none of the hosts that could be asked answers." for name in unasked
    ]


def service_problems(look: Mapping[str, Any]) -> Iterator[str]:
    """Where nobody can be asked how services are, that is the machine's reason, and told once; the table names them."""
    drained = {mark["host"] for mark in look.get("drained", [])}
    unasked: dict[str, list[str]] = {}
    for each in look["services"]:
        place = f"{each['name']} on {each['host']}"
        if each["complaint"] is None or each["host"] in drained:
            continue
        if each["state"] == "unknown":
            unasked.setdefault(each["complaint"], []).append(place)
        else:
            yield f"{place} is not well: {each['complaint'].rstrip('.')}."
    for complaint, places in unasked.items():
        yield f"{together(places)} not well: {complaint.rstrip('.')}."
    yield from certificate_problems(look)


def together(places: Sequence[str]) -> str:
    """What is not well for one reason, with its verb."""
    if len(places) == 1:
        return f"{places[0]} is"
    return f"{len(places)} services of one machine, {places[0]} first, are"


def certificate_problems(look: Mapping[str, Any]) -> Iterator[str]:
    for each in look["services"]:
        left_s = each.get("certificate_left_s")
        if left_s is not None and left_s < CERTIFICATE_DAYS_MIN * 86_400:
            yield (
                f"The certificate that {each['name']} on {each['host']} shows {lasting(left_s)}: "
                "renew it with playbooks/certificates.yml."
            )


def disk_problems(host: str, look: Mapping[str, Any]) -> Iterator[str]:
    for disk in look.get("disks", []):
        if disk["free_mb"] < DISK_FREE_MB_MIN and disk["free_mb"] < disk["whole_mb"] * DISK_FREE_SHARE_MIN:
            yield f"The disk of {disk['folder']} on {host} has {disk['free_mb']:,} MB of {disk['whole_mb']:,} MB left."


def lasting(left_s: int) -> str:
    return f"expires in {duration(left_s)}" if left_s > 0 else f"has been expired for {duration(-left_s)}"


def last_lines(said: str) -> str:
    lines = said.splitlines()
    return "\n  ".join(["", *lines[-SAID_LINES_MAX:]]) if len(lines) > 1 else said
