"""No secret leaves a host by a rule's oversight, and what is none stays readable."""

from __future__ import annotations

import time

import pytest
from playbooks_kit import load

redaction = load("ansible.module_utils.headrace_redaction")
CANARY = "c4n4ry/+=, x"
WORD = "c4n4ry"


@pytest.mark.parametrize(
    "text",
    [
        f"ssl.keystore.password={CANARY}",
        f"s3.secret-access-key: {CANARY}",
        f"s3.session-token = {CANARY}",
        f"  aws_access_key_id={CANARY}",
        f'{{"sasl.jaas.config": "{CANARY}", "x": 1}}',
        f"sasl.jaas.config=org.x.PlainLoginModule required username=a password={CANARY};",
        f"<password>{CANARY}</password>",
        f"Environment=DB_PASSWD={CANARY}",
        f"-Djavax.net.ssl.trustStorePassword={CANARY}",
        f"headrace load --catalog-token {WORD} --x",
        f"Authorization: Bearer {CANARY}",
        f"sent Bearer {WORD}.abc.def",
        f"uri=postgresql://me:{WORD}@db:5432/x",
        f"https://me:a@b{WORD}@host/x",
        f"GET /b?X-Amz-Signature={WORD}&y=1",
        f"-----BEGIN RSA PRIVATE KEY-----\n{WORD}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{WORD}\n",
        "id AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_what_is_secret_by_a_rule_goes(text: str) -> None:
    left = redaction.redacted(text)
    assert WORD not in left
    assert "AKIA" not in left
    assert redaction.REDACTED in left


@pytest.mark.parametrize(
    "text",
    [
        "broker.id=1\nlisteners=PLAINTEXT://10.0.0.1:9092\n",
        "zookeeper.connect=10.0.0.1:2181,10.0.0.2:2181",
        "2026-01-31 INFO partition pageviews-0 is led by 2 (epoch 3)",
        "kafka://10.0.0.1:9092 and mail me@example.org",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert redaction.redacted(text) == text


def test_what_a_secret_file_holds_is_found_anywhere_else() -> None:
    values = redaction.values_of("# a comment\ntype=sql\ns3.key: 'q8/zz11'\nwholeline\n")
    left = redaction.redacted("said q8/zz11, q8%2Fzz11, wholeline, sql, a comment", values)
    assert left == "said REDACTED, REDACTED, REDACTED, sql, a comment"


def test_other_lines_are_left() -> None:
    assert redaction.redacted("a=1\npassword=x\nb=2\n") == "a=1\npassword=REDACTED\nb=2\n"


def test_a_megabyte_of_anything_costs_little() -> None:
    """Rules that go back and forth over a long word would take minutes."""
    began = time.process_time()
    for word in ("-", "-a", "token ", "://a:", "-token"):
        redaction.redacted(word * (200_000 // len(word)) + "token")
    assert time.process_time() - began < 5
