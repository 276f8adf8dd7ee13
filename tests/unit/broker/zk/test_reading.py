"""Requests of many reads, and what is made of their answers."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from ensemble import Ensemble, Result, SimulatedKazoo
from kazoo.exceptions import NoAuthError, NoNodeError, UnimplementedError
from kazoo.protocol.serialization import int_struct, multiheader_struct, stat_struct, write_buffer
from virtual_time import VirtualLoop

from headrace.broker.zk.client import READS_TOGETHER_MAX, ZooKeeperClient
from headrace.broker.zk.reading import MultiRead

STAT = tuple(range(11))
END = multiheader_struct.pack(-1, True, -1)


def found(data: bytes) -> bytes:
    return bytes(multiheader_struct.pack(4, False, 0) + write_buffer(data) + stat_struct.pack(*STAT))


def failed(code: int) -> bytes:
    return bytes(multiheader_struct.pack(-1, False, code) + int_struct.pack(code))


def test_a_request_holds_its_reads_and_an_end() -> None:
    assert MultiRead(["/a", "/b"]).serialize() == (
        b"\0\0\0\4\0\xff\xff\xff\xff\0\0\0\2/a\0\0\0\0\4\0\xff\xff\xff\xff\0\0\0\2/b\0" + END
    )


def test_an_answer_has_each_znode_or_none() -> None:
    answer = b"head" + found(b"data") + failed(NoNodeError.code) + found(b"") + END
    assert MultiRead([]).deserialize(answer, 4) == [(b"data", STAT), None, (b"", STAT)]


def test_any_other_error_is_raised() -> None:
    with pytest.raises(NoAuthError):
        MultiRead([]).deserialize(found(b"data") + failed(NoAuthError.code) + END, 0)


class OldKazoo(SimulatedKazoo):
    """Of a server before ZooKeeper 3.6."""

    refused = 0

    def get_many_async(self, paths: Sequence[str]) -> Result:
        self.refused += 1
        result = Result()
        result.finish(None, UnimplementedError())
        return result


@pytest.mark.parametrize("kind", [SimulatedKazoo, OldKazoo])
def test_many_znodes_are_read_from_any_server(kind: type[SimulatedKazoo]) -> None:
    with VirtualLoop() as loop:
        kazoo = kind(Ensemble(loop, random.Random(1)), 6.0)
        client = ZooKeeperClient(
            "", session_timeout_ms=6000, connection_timeout_ms=6000, make_kazoo=lambda *_: kazoo
        )

        async def script() -> None:
            await client.connect()
            for number in range(READS_TOGETHER_MAX + 1):
                await client.create(f"/{number}", str(number).encode())
            for _ in range(2):
                *znodes, gone = await client.get_many(
                    [*(f"/{n}" for n in range(READS_TOGETHER_MAX + 1)), "/gone"]
                )
                assert [znode and znode.data for znode in znodes] == [
                    str(n).encode() for n in range(READS_TOGETHER_MAX + 1)
                ]
                assert gone is None

        loop.run_until_complete(script())
    assert getattr(kazoo, "refused", 0) == (2 if kind is OldKazoo else 0), "one look, of two requests"
