"""Which topics are audited by events, by headers, or not at all."""

from __future__ import annotations

import pytest

from headrace.audit.modes import CHANGES_MAX, ModesOverTime, TopicModes, parse
from headrace.audit.topic_names import TopicNames
from headrace.audit.topic_names import parse as parse_names

RULES = "clicks[.].*=headers,old=off,pageviews[.]raw=headers"
NOTHING = TopicNames(frozenset(), ())


def test_the_first_rule_that_takes_a_topic_decides() -> None:
    modes = TopicModes(parse_names("pageviews.*"), parse("pageviews.raw=off,pageviews.*=headers"))
    assert [modes.mode(name) for name in ("pageviews.raw", "pageviews", "clicks")] == ["off", "headers", None]
    assert "pageviews.raw" not in modes
    assert "pageviews" in modes
    assert "clicks" not in modes


def test_without_a_rule_topics_are_audited_by_their_events() -> None:
    modes = TopicModes(parse_names("pageviews,old"), parse(RULES))
    assert [modes.mode(name) for name in ("pageviews", "old", "clicks.a")] == ["events", "off", "headers"]
    assert modes.others(["pageviews", "old", "clicks.a", "b"]) == {"old": "off", "clicks.a": "headers"}
    assert modes.missing([]) == ["pageviews"]


def test_the_same_rules_take_the_copies() -> None:
    modes = TopicModes(parse_names("dc-east.pageviews"), parse(".*=headers"), is_copies=True)
    assert modes.mode("dc-east.clicks") == "headers"
    for own in ("headrace.counts", "dc-east.headrace.counts", "__consumer_offsets", "clicks"):
        assert own not in modes


def test_there_may_be_nothing_to_count() -> None:
    assert not TopicModes(NOTHING, parse("old=off")).takes_any
    assert TopicModes(NOTHING, parse("a=headers")).takes_any
    assert TopicModes(parse_names("a")).takes_any
    assert parse("") == ()


@pytest.mark.parametrize("text", ["clicks", "clicks=", "=headers", "clicks=header", "[=headers"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        parse(text)


def test_says_itself_in_the_words_of_the_options() -> None:
    assert str(TopicModes(parse_names("b,a"), parse("c=headers"))) == "a,b,c=headers"


def test_modes_over_time_are_those_of_the_counters_clock() -> None:
    modes = ModesOverTime()
    assert modes.at("dc", "clicks", 5) == "events"
    modes.take("dc", {"clicks": "headers"}, ["clicks", "pageviews"], 10)
    modes.take("dc", {}, ["pageviews"], 15)
    modes.take("dc", {"clicks": "off"}, [], 20)
    modes.take("dc", {}, ["clicks"], 30)
    found = [modes.at("dc", "clicks", at) for at in (9, 10, 19, 20, 30, 99)]
    assert found == ["events", "headers", "headers", "off", "events", "events"]
    assert (modes.off(), modes.now("dc", "pageviews"), modes.now("other", "clicks")) == (
        set(),
        "events",
        "events",
    )


def test_few_changes_are_remembered() -> None:
    modes = ModesOverTime()
    for at in range(CHANGES_MAX + 50):
        modes.take("dc", {"clicks": "off" if at % 2 else "headers"}, [], at)
    assert len(modes.changes["dc", "clicks"]) == CHANGES_MAX
