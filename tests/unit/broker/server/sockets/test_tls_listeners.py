"""What listeners serve with, at a start and after a change: own settings, renewed certificates, and what is refused."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tls_kit import Identity, authority, pem_settings, signed

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.server.sockets.tls_listeners import TlsListeners

CA = authority()


def config_of(**properties: str) -> BrokerConfig:
    config, unknown = BrokerConfig.from_properties(
        {
            "listeners": "PLAINTEXT://:1,SSL://:2,OTHER://:3",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,OTHER:SSL",
            **properties,
        }
    )
    assert unknown == []
    return config


def stores(folder: Path, identity: Identity) -> dict[str, str]:
    return pem_settings(folder, identity, [CA.certificate])


def test_each_listener_has_its_own_settings(tmp_path: Path) -> None:
    other = {
        f"listener.name.other.{k}": v for k, v in stores(tmp_path / "other", signed(CA, "other")).items()
    }
    tls = TlsListeners(config_of(**stores(tmp_path / "all", signed(CA, "all")), **other))
    subjects = [tls[name].certificate.subject.rfc4514_string() for name in ("SSL", "OTHER")]
    assert subjects == ["CN=all", "CN=other"]
    with pytest.raises(KeyError):
        tls["PLAINTEXT"]


def test_a_listener_that_cannot_serve_is_told_by_the_name_of_its_setting(tmp_path: Path) -> None:
    properties = stores(tmp_path, signed(CA))
    with pytest.raises(ConfigurationError, match=r"^ssl\.keystore\.location= is not allowed"):
        TlsListeners(config_of())
    with pytest.raises(
        ConfigurationError, match=r"^listener\.name\.other\.ssl\.keystore\.location=/no is not"
    ):
        TlsListeners(config_of(**properties, **{"listener.name.other.ssl.keystore.location": "/no"}))
    with pytest.raises(ConfigurationError, match=r"^ssl\.principal\.mapping\.rules=x is not"):
        TlsListeners(config_of(**properties, **{"ssl.principal.mapping.rules": "x"}))


def test_brokers_have_to_trust_themselves_where_they_connect_to_each_other(tmp_path: Path) -> None:
    trusting_others = pem_settings(tmp_path, signed(CA), [authority("other").certificate])
    TlsListeners(config_of(**trusting_others))
    with pytest.raises(ConfigurationError, match="a store that trusts the broker's own certificate"):
        TlsListeners(config_of(**trusting_others, **{"security.inter.broker.protocol": "SSL"}))
    TlsListeners(config_of(**stores(tmp_path / "own", signed(CA)), **{"inter.broker.listener.name": "SSL"}))


def test_a_file_that_changed_under_its_name_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(**stores(tmp_path, signed(CA, "broker")))
    tls = TlsListeners(config)
    before = tls["SSL"]
    renewed = signed(CA, "broker", days=(-1, 60))
    stores(tmp_path, renewed)
    expires = before.certificate.not_valid_after_utc.timestamp()
    assert tls.expirations() == {"SSL": expires, "OTHER": expires}
    with caplog.at_level(logging.INFO):
        tls.use(config)
    assert tls["SSL"].certificate == renewed.certificate
    expires = renewed.certificate.not_valid_after_utc.timestamp()
    assert tls.expirations() == {"SSL": expires, "OTHER": expires}
    assert tls["SSL"].context is not before.context
    assert [r.getMessage() for r in caplog.records] == ["certificate renewed"] * 2


@pytest.mark.parametrize("name", ["another", "broker"])
def test_a_certificate_for_somebody_else_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    config = config_of(**stores(tmp_path, signed(CA, "broker")))
    tls = TlsListeners(config)
    before = tls["SSL"]
    stores(tmp_path, signed(CA, name, hosts=("localhost",)))
    with pytest.raises(ConfigurationError, match=r"ssl\.allow\.(dn|san)\.changes=true"):
        tls.check(config)
    tls.use(config)
    assert tls["SSL"] is before
    assert [r.getMessage() for r in caplog.records] == ["certificates are not usable, the last ones stay"]


def test_a_file_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    config = config_of(**stores(tmp_path, signed(CA, "broker")))
    tls = TlsListeners(config)
    before = tls["OTHER"]
    (tmp_path / "keys.pem").unlink()
    with pytest.raises(ConfigurationError, match="No such file"):
        tls.check(config)
    tls.use(config)
    assert tls["OTHER"] is before
