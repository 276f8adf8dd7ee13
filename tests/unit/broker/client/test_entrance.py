"""Who is let in is told from who does not answer."""

from __future__ import annotations

import socket

import pytest
from scripted_broker import scripted_broker
from secured_broker import SCRAM, Gate, sasl

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.entrance import check_entrance
from headrace.broker.wire.client.login import LoginError


def place(address: tuple[str, int]) -> str:
    return "{}:{}".format(*address)


def test_one_broker_that_lets_in_is_enough_and_one_that_is_gone_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nobody = place(gone.getsockname())
    with scripted_broker(Gate(lambda key, message: {}, {3: (0, 12)})) as broker:
        check_entrance(Bootstrap(f"{nobody},{place(broker.address)}", sasl(SCRAM)))
        with pytest.raises(LoginError):
            check_entrance(Bootstrap(f"{nobody},{place(broker.address)}", sasl(SCRAM, "wrong")))
    check_entrance(Bootstrap(nobody, sasl(SCRAM)))


def test_in_plaintext_nobody_is_asked() -> None:
    with scripted_broker(lambda key, message: {}) as broker:
        check_entrance(Bootstrap(place(broker.address)))
    assert broker.keys == []
