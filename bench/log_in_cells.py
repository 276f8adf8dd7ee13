"""Log-ins by SCRAM on one broker beside Apache Kafka: connections come, log in and go (`bench.log_in_program`)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Final

import click

from bench import contest, flows
from bench.log_in_program import MECHANISM
from bench.peers import Peer
from bench.programs import told_by
from bench.runs import RawRun, Workshop
from headrace.broker.auth.jaas import SCRAM_MODULE
from headrace.broker.auth.sasl.credentials import MECHANISM_CODES, salted_password
from headrace.broker.client.blocking import BlockingLink
from headrace.broker.wire.api import k51_alter_user_scram_credentials

LOG_INS = f"log-ins by {MECHANISM}, 4 at a time"
CONNECTIONS: Final = 4
ITERATIONS: Final = 4096
NAME, PASSWORD = "bench", "bench-password"
SLACK_SECONDS = 1.0
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": MECHANISM,
    f"listener.name.sasl.{MECHANISM.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;",
}

name = "log-ins"
title = "Log-ins"
note = (
    f"one broker without TLS; a client of {CONNECTIONS} threads connects, agrees on versions, logs in and closes; it computes "
    "the salted password once, and its CPU is not counted"
)
cells = (LOG_INS,)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take, both brokers together."""
    runs = workshop.effort.pairs * (1 if workshop.kafka_jars is None else 2)
    return runs, runs * (workshop.effort.seconds + SLACK_SECONDS)


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the cell, in turns against both warm brokers."""
    with (
        contest.zookeeper(workshop.data / "zookeeper") as ensemble,
        contest.both(
            workshop.kafka_jars, workshop.data, ensemble, settings=SETTINGS, second_listener="SASL"
        ) as peers,
    ):
        for peer in peers:
            _add_user(peer)
            flows.warm_up(peer, workshop)
            _log_in(peer, max(workshop.effort.warm_up_seconds / 4, 1.0))
        for number, peer in contest.in_turns(peers, workshop.effort.pairs):
            yield _run(number, peer, workshop)


def _add_user(peer: Peer) -> None:
    salt = secrets.token_bytes(16)
    (code,) = (number for number, mechanism in MECHANISM_CODES.items() if mechanism == MECHANISM)
    upsertion = {
        "name": NAME,
        "mechanism": code,
        "iterations": ITERATIONS,
        "salt": salt,
        "salted_password": salted_password(MECHANISM, PASSWORD, salt, ITERATIONS),
    }
    with BlockingLink(peer.addresses[0], "bench", contest.START_SECONDS_MAX) as link:
        message = {"deletions": [], "upsertions": [upsertion]}
        (answer,) = link.ask(k51_alter_user_scram_credentials.API, 0, message)["results"]
    if answer["error_code"]:
        raise click.ClickException(f"{peer.name} takes no user: {answer['error_message']}.")


def _run(number: int, peer: Peer, workshop: Workshop) -> RawRun:
    before = peer.cpu_seconds
    found = _log_in(peer, workshop.effort.seconds)
    return RawRun(
        cell=LOG_INS,
        peer=peer.name,
        round=number,
        messages=int(found["log_ins"]),
        bytes=0,
        seconds=round(found["seconds"], 4),
        cpu_seconds=round(peer.cpu_seconds - before, 4),
        memory_mib=peer.memory_mib,
        settings={"connections": CONNECTIONS, "iterations": ITERATIONS},
    )


def _log_in(peer: Peer, seconds: float) -> dict[str, float]:
    """Let a process log in for so long; return what it says of itself."""
    asked = (peer.second_bootstrap, NAME, PASSWORD, str(CONNECTIONS), str(seconds))
    return told_by("log_in_program", asked, seconds + 60)
