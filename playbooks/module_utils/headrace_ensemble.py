"""What the members of a ZooKeeper ensemble say of themselves (`mntr`), and whether all of them serve in step.

One that may not tell (it was started from another `4lw.commands.whitelist`) is asked `srvr`, which does not say who is in step.

Only the standard library: a host needs nothing of headrace for it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import NamedTuple

from ansible.module_utils.headrace_health import unverified

WORD_S_MAX = 2.0
ANSWER_SIZE_MAX = 1 << 20
LEADING = ("leader", "standalone")
SERVING = (*LEADING, "follower")


class Member(NamedTuple):
    """One member's answer; `wrong` is half a sentence in its place."""

    state: str = ""
    synced_followers: int | None = None
    wrong: str = ""

    @property
    def serves(self) -> bool:
        return self.state in SERVING


def ask(address: str, tls: bool = False) -> Member:
    """What the member says whose clients' port, with TLS or without, is at `host:port`."""
    try:
        answer = told(word(address, b"mntr", tls))
        return answer if answer is not None else told_shortly(word(address, b"srvr", tls))
    except OSError as error:
        return Member(wrong=f"does not answer: {error}")


def word(address: str, command: bytes, tls: bool) -> str:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), WORD_S_MAX) as connection:
        if not tls:
            return said(connection, command)
        # Nothing is told to it that others must not hear.
        with unverified().wrap_socket(connection) as secured:
            return said(secured, command)


def said(connection: socket.socket, command: bytes) -> str:
    connection.sendall(command)
    answer = b""
    while len(answer) < ANSWER_SIZE_MAX and (part := connection.recv(65536)):
        answer += part
    return answer.decode(errors="replace")


def told(answer: str) -> Member | None:
    """The member that gives this answer to `mntr`; None when it may not."""
    numbers = dict(line.split("\t", 1) for line in answer.splitlines() if "\t" in line)
    if "zk_server_state" in numbers:
        return Member(numbers["zk_server_state"], int(float(numbers.get("zk_synced_followers", 0))))
    if "whitelist" in answer:
        return None
    return Member(wrong=f"serves nobody: {answer.strip()[:200]}")


def told_shortly(answer: str) -> Member:
    """The member that gives this answer to `srvr`."""
    modes = [line.partition(": ")[2] for line in answer.splitlines() if line.startswith("Mode: ")]
    return Member(modes[0]) if modes else Member(wrong=f"serves nobody: {answer.strip()[:200]}")


def leader(members: Mapping[str, Member]) -> str:
    """The host of the member that leads, or nothing when none says so."""
    return next((at.rpartition(":")[0] for at, member in members.items() if member.state in LEADING), "")


def hindrance(members: Mapping[str, Member]) -> str | None:
    """None when one member leads and all others follow it in step; otherwise what is wrong, as a sentence."""
    for address, member in members.items():
        if not member.serves:
            return f"ZooKeeper at {address} {member.wrong or f'is {member.state}'}."
    leaders = [address for address, member in members.items() if member.state in LEADING]
    if len(leaders) != 1:
        return f"Of {len(members)} ZooKeepers {len(leaders)} lead: {', '.join(leaders) or 'none'}."
    synced, wanted = members[leaders[0]].synced_followers, len(members) - 1
    if synced is not None and synced < wanted:
        return f"ZooKeeper at {leaders[0]} leads and has {synced} of {wanted} followers in step."
    return None


def stop_hindrance(members: Mapping[str, Member], stopping: str) -> str | None:
    """None when the ensemble keeps its quorum without the member at that address, or has none to lose; else a sentence."""
    if not members[stopping].serves:
        return None
    left, needed = sum(member.serves for member in members.values()) - 1, len(members) // 2 + 1
    if left >= needed:
        return None
    return f"Without ZooKeeper at {stopping} {left} of {len(members)} would serve, and {needed} are needed."
