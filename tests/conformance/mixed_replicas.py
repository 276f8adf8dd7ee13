"""Clusters of three brokers, each of them headrace or Apache Kafka 3.9, on one ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kafka_oracle import KafkaProcess, check_replicas
from processes import eventually
from replicated_cluster import PARTITION_COUNT, SETTINGS, TOPIC, ReplicatedCluster

HEADRACE, KAFKA = "headrace", "kafka"


class MixedReplicas(ReplicatedCluster):
    """Each broker is of the kind that `kinds` says when it is started; its data stays what it is."""

    def __init__(
        self, home: Path, jars: Path, kinds: Mapping[int, str], set: Mapping[str, str] | None = None
    ) -> None:
        self._jars = jars
        self.kinds = dict(kinds)
        self._set = set or {}
        super().__init__(home)

    def start(self, number: int) -> None:
        self.own_settings[number] = self._set
        if self.kinds[number] == HEADRACE:
            super().start(number)
            return
        host, port = self.addresses[number]
        home = self.home / f"broker-{number}"
        home.mkdir(exist_ok=True)
        properties = {
            **SETTINGS,
            "broker.id": number,
            "listeners": f"PLAINTEXT://{host}:{port}",
            "log.dirs": home / "logs",
            "zookeeper.connect": self.zookeeper.address,
            **self._set,
        }
        # Apache Kafka ends at once where the session of its earlier life has not.
        registered = f"/brokers/ids/{number}"
        eventually(lambda: self._znodes.exists(registered) is None, what="the end of the registration")
        config = home / "kafka.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        broker = KafkaProcess(self._jars, config, bootstrap=f"{host}:{port}", log=home / "kafka.log")
        self.brokers[number] = broker
        broker.wait_until_serving()

    def swap(self, number: int, kind: str) -> None:
        """Stop a broker in order, and start the other kind on its data."""
        self.brokers[number].stop()
        self.kinds[number] = kind
        self.start(number)
        self.wait_until_in_sync()

    def controller(self) -> int:
        if self._znodes.exists("/controller") is None:
            return -1
        return int(json.loads(self._znodes.retry(self._znodes.get, "/controller")[0])["brokerid"])

    def check_replicas(self) -> None:
        """Kafka's own tool finds them the same."""
        check_replicas(self._jars, self.bootstrap, TOPIC, PARTITION_COUNT, self.home / "replicas.txt")
