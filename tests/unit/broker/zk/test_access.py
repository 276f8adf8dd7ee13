"""How a broker is let in by ZooKeeper: what its settings mean, and which znodes are whose."""

from __future__ import annotations

from pathlib import Path

import pytest
import tls_kit

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.zk.access import DIGEST_MODULE, OPEN, ZooKeeperAccess

SECRET = "canary-secret"
JAAS_FILE = "headrace.zookeeper.jaas.file"


def jaas(folder: Path, section: str = "Client", module: str = DIGEST_MODULE) -> str:
    file = folder / "client.jaas"
    file.write_text(
        f'// of a broker\nKafkaServer {{ some.Module required; other.Module optional a="b"; }};\n'
        f'{section} {{\n  {module} required\n  username="kafka"\n  password="{SECRET}\\"}}";\n}};\n'
    )
    return str(file)


def access_of(environment: dict[str, str] | None = None, **properties: str) -> ZooKeeperAccess:
    given = {key.replace("__", "."): value for key, value in properties.items()}
    found = ZooKeeperAccess.of(given, environment or {})
    assert SECRET not in repr(found)
    return found


def refusal(environment: dict[str, str] | None = None, **properties: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        access_of(environment, **properties)
    assert SECRET not in str(raised.value)
    return str(raised.value)


def test_nothing_said_is_plain_text_for_everybody() -> None:
    access = access_of()
    assert access == OPEN
    assert (access.context(), access.acl_of("/brokers")) == (None, None)


def test_the_section_client_says_who_logs_in(tmp_path: Path) -> None:
    file = jaas(tmp_path)
    option = {"KAFKA_OPTS": f"-Dx=y -Djava.security.auth.login.config={file} -Dz=1"}
    for access in (access_of(headrace__zookeeper__jaas__file=file), access_of(option)):
        assert (access.user, access.password) == ("kafka", f'{SECRET}"}}')


def test_a_login_is_renewed_from_the_file(tmp_path: Path) -> None:
    file = jaas(tmp_path)
    access = access_of(headrace__zookeeper__jaas__file=file, zookeeper__set__acl="true")
    Path(file).write_text(Path(file).read_text().replace(SECRET, "another"))
    renewed = access.renewed()
    assert (renewed.user, renewed.password, renewed.sets_acls) == ("kafka", 'another"}', True)
    Path(file).unlink()
    with pytest.raises(ConfigurationError):
        access.renewed()
    assert OPEN.renewed() == OPEN


def test_a_file_of_java_that_is_for_others_alone_says_nothing(tmp_path: Path) -> None:
    option = {"KAFKA_OPTS": f"-Djava.security.auth.login.config={jaas(tmp_path, 'Other')}"}
    assert access_of(option) == OPEN


def test_what_cannot_log_in_is_one_sentence(tmp_path: Path) -> None:
    assert "with a section Client" in refusal(headrace__zookeeper__jaas__file=jaas(tmp_path, "Other"))
    assert "with a section Client" in refusal(headrace__zookeeper__jaas__file=jaas(tmp_path, module="x.Krb5"))
    (tmp_path / "odd").write_text(f"Client {SECRET}")
    assert "a JAAS file, whose sections" in refusal(headrace__zookeeper__jaas__file=str(tmp_path / "odd"))
    assert "can be read (No such file" in refusal(headrace__zookeeper__jaas__file="/nowhere")
    assert "zookeeper.set.acl=true is not allowed" in refusal(zookeeper__set__acl="true")


def test_the_forms_of_stores_follow_from_their_names_and_a_pem_has_the_keys_password(tmp_path: Path) -> None:
    authority = tls_kit.authority()
    own = tls_kit.signed(authority, "broker")
    keys, trust = tmp_path / "keys.pem", tmp_path / "trust.jks"
    keys.write_text(own.key_pem(SECRET) + own.chain_pem())
    trust.write_bytes(tls_kit.jks_store(None, [authority.certificate]))
    access = access_of(
        zookeeper__ssl__client__enable="true",
        zookeeper__ssl__keystore__location=str(keys),
        zookeeper__ssl__keystore__password=SECRET,
        zookeeper__ssl__truststore__location=str(trust),
        zookeeper__ssl__truststore__password=tls_kit.PASSWORD,
        zookeeper__set__acl="true",
    )
    context = access.context()
    assert context is not None
    assert context.check_hostname
    with pytest.raises(ConfigurationError, match=r"zookeeper\.ssl\.keystore\.location=/nowhere\.p12"):
        access_of(
            zookeeper__ssl__client__enable="true", zookeeper__ssl__keystore__location="/nowhere.p12",
            zookeeper__ssl__keystore__password="x",
        ).context()  # fmt: skip


@pytest.mark.parametrize(
    ("path", "readers"),
    [
        ("/brokers/topics/t", {"sasl", "world"}),
        ("/config/users/alice", {"sasl"}),
        ("/config/brokers/1", {"sasl"}),
        ("/delegation_token/tokens/x", {"sasl"}),
        ("/config/topics/t", {"sasl", "world"}),
        ("/consumers", {"world"}),
    ],
)
def test_whose_a_znode_is_is_as_kafka_has_it(path: str, readers: set[str]) -> None:
    found = ZooKeeperAccess(user="kafka", password=SECRET, sets_acls=True).acl_of(path)
    assert found is not None
    assert {each.id.scheme for each in found} == readers
    writers = {each.id.scheme for each in found if each.perms & 2}
    assert writers == ({"world"} if path == "/consumers" else {"sasl"})


@pytest.mark.parametrize(
    ("access", "owner"),
    [
        (ZooKeeperAccess(user="kafka", sets_acls=True), ("sasl", "kafka")),
        (ZooKeeperAccess(user="kafka@REALM", sets_acls=True), ("auth", "")),
        (ZooKeeperAccess(tls={"ssl.keystore.location": "/k"}, user="kafka", sets_acls=True), ("auth", "")),
        (ZooKeeperAccess(tls={"ssl.keystore.location": "/k"}, sets_acls=True), ("auth", "")),
        (ZooKeeperAccess(tls={}, user="kafka", sets_acls=True), ("sasl", "kafka")),
    ],
)
def test_who_has_one_name_owns_by_it_and_others_by_all_that_zookeeper_knows(
    access: ZooKeeperAccess, owner: tuple[str, str]
) -> None:
    found = access.acl_of("/config/users")
    assert found is not None
    assert [(each.id.scheme, each.id.id, each.perms) for each in found] == [(*owner, 31)]
