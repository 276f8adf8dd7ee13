"""Names and patterns of the topics that a counter counts."""

from __future__ import annotations

import pytest

from headrace.audit.topic_names import parse


@pytest.mark.parametrize(
    ("text", "taken", "left"),
    [
        ("pageviews", ["pageviews"], ["pageviews2", "xpageviews"]),
        ("a, b.rejected ,", ["a", "b.rejected"], ["bxrejected", "c", ""]),
        ("page.*", ["page", "pageviews", "page.rejected"], ["a.pageviews"]),
        ("dc-[a-z]+[.]page.*|clicks", ["dc-east.pageviews", "clicks"], ["clicks2"]),
        ("t{1,3},u{2,},v", ["t", "ttt", "uu", "v"], ["tttt", "u"]),
    ],
)
def test_names_are_literal_and_patterns_match_whole_names(
    text: str, taken: list[str], left: list[str]
) -> None:
    topics = parse(text)
    assert [name for name in (*taken, *left) if name in topics] == taken


@pytest.mark.parametrize(
    "topic",
    [
        "__consumer_offsets",
        "_schemas",
        "headrace.counts",
        "headrace.monitoring",
        "dc-east.headrace.counts",
        "dc-east._schemas",
    ],
)
def test_a_pattern_takes_no_topic_that_is_not_the_users(topic: str) -> None:
    assert topic not in parse(".*")
    assert topic in parse(topic)
    assert "headraces" in parse(".*")


@pytest.mark.parametrize(
    ("text", "sentence"), [(" , ", "name at least one topic"), ("a,(b", "'\\(b' is neither a topic's name")]
)
def test_what_is_no_topic_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse(text)


def test_names_and_patterns_that_take_no_topic_are_told() -> None:
    wanted = parse("pageviews,clicks,a.*,b+")
    assert wanted.missing({"pageviews", "abc", "c"}) == ["clicks", "b+"]
    assert wanted.missing({"pageviews", "clicks", "a", "bb"}) == []
