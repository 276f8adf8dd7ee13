"""What forbids a change of the release, which release is the one before, and who has a turn in which order.

Hosts tell what they have in `release_look` (headrace_installed), and what of their services is due in `turn_due` and has not
passed its gates in `turn_kept`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from packaging.version import Version

from headrace_inventory.addresses import Groups, HostVars, kinds_of

# HAProxy is the system's own, whatever the release, and members of a mirror have a playbook of their own.
UNRELEASED = ("haproxy", "mirror")


def released_kinds(host: str, groups: Groups) -> list[str]:
    """The kinds of the host's services that run from the release, those that others need first."""
    return [kind for kind in reversed(kinds_of(host, groups)) if kind not in UNRELEASED]


def release_before(hosts: Iterable[str], hostvars: HostVars) -> str:
    """The release to go back to: the oldest of several that are in use, or else the newest older one that all hosts have.

    Where there is none it is the one in use itself.
    """
    looks = [hostvars[host]["release_look"] for host in hosts]
    used = _in_use(looks)
    if not used:
        return ""
    oldest = min(used, key=Version)
    if len(used) > 1:
        return oldest
    everywhere: set[str] = set.intersection(
        *({each["version"] for each in look["releases"]} for look in looks)
    )
    older = [version for version in everywhere if Version(version) < Version(oldest)]
    return max(older, key=Version, default=oldest)


def _in_use(looks: Iterable[Mapping[str, Any]]) -> set[str]:
    """The releases that services run from, or that are a host's current one."""
    return {
        version
        for look in looks
        for version in (look["current"], *(each["version"] for each in look["releases"] if each["runs"]))
        if version
    }


def release_problems(
    hosts: Iterable[str], hostvars: HostVars, version: str, manifest: Mapping[str, Any] | None
) -> list[str]:
    """One sentence for each thing that forbids the change to a release; without a manifest the hosts must have it already."""
    looks = {host: hostvars[host]["release_look"] for host in hosts}
    is_back_already = manifest is None and _in_use(looks.values()) == {version}
    found: dict[str, str] = {}
    for host, look in looks.items():
        stamps = {each["version"]: each for each in look["releases"]}
        wanted = manifest or stamps.get(version)
        now = stamps.get(look["current"])
        if now is None:
            sentence = "Host {host} runs no release yet: roll out with playbooks/site.yml."
        elif wanted is None:
            there = ", ".join(sorted(stamps, key=Version))
            sentence = f"Host {{host}} has no release {version} to go back to; it has {there}."
        elif is_back_already:
            sentence = (
                f"Host {{host}} runs {version} already: name the release to go back to with -e release_version=OLD."
                if len(stamps) > 1
                else f"Host {{host}} has no other release than {version}, which it runs: there is none to go back to."
            )
        else:
            sentence = reading_problem(now, wanted)
        if sentence:
            found.setdefault(sentence, host)
    return [sentence.format(host=host) for sentence, host in found.items()]


def reading_problem(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """What forbids to go from one release to another: either must read what the other writes, since there may be a way back."""
    if Version(wanted["version"]) < Version(now["oldest_reader"]):
        return (
            f"Release {wanted['version']} does not read what {now['version']}, which host {{host}} runs, has written: "
            f"the oldest that does is {now['oldest_reader']}."
        )
    if Version(now["version"]) < Version(wanted["oldest_reader"]):
        return (
            f"Release {wanted['version']} writes what {now['version']}, which host {{host}} runs, does not read, so that there "
            f"would be no way back: upgrade to {wanted['oldest_reader']} first."
        )
    return ""


def due_order(hosts: Iterable[str], hostvars: HostVars) -> list[str]:
    """These hosts, which are in the order of their turns, but first those where something has not passed its gates."""
    return sorted(hosts, key=lambda host: not hostvars[host].get("turn_kept"))


def back_order(turns: Iterable[str], hostvars: HostVars, groups: Groups) -> list[str]:
    """The order of the way back: the host that failed, then the others that were changed, by this run or one before it."""
    failed = groups["change_failed"]
    changed = [host for host in turns if host in groups["change_begun"] or hostvars[host].get("turn_kept")]
    return [*failed, *(host for host in reversed(changed) if host not in failed)]


def went_back(hosts: Iterable[str], hostvars: HostVars) -> list[str]:
    """Those of these hosts where there was something to go back to."""
    return [host for host in hosts if hostvars[host].get("turn_back")]
