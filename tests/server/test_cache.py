"""The simulated prompt cache, as the usage of replies tells it."""

from tests.server import CacheRules
from tests.server.client import BASH, MARK, MakePair, as_param, assistant, text, user
from tests.server.jsonish import Json


def big(name: str) -> Json:
    return text(name * 400)


async def test_the_cache_bills_reads_writes_and_the_rest(pair: MakePair) -> None:
    both = await pair(default="echo")
    system = [text("s" * 4000, cache_control={**MARK, "ttl": "1h"})]
    one = user(text("a" * 400, cache_control=MARK), text("b" * 40))
    first = (await both.client.say(one, system=system)).usage
    assert (first.cache_read_input_tokens, first.input_tokens) == (0, 10)
    assert first.cache_creation.ephemeral_1h_input_tokens == 1000
    assert first.cache_creation.ephemeral_5m_input_tokens == 100
    again = (await both.client.stream(one, system=system)).usage
    assert (again.cache_read_input_tokens, again.cache_creation_input_tokens) == (1100, 0)
    both.server.advance(299)
    assert (await both.client.say(one, system=system)).usage.cache_read_input_tokens == 1100
    both.server.advance(301)
    late = (await both.client.say(one, system=system)).usage
    assert (late.cache_read_input_tokens, late.cache_creation.ephemeral_5m_input_tokens) == (1000, 100)
    other = (await both.client.say(one, system=system, thinking={"type": "adaptive"})).usage
    assert other.cache_read_input_tokens == 1000, "thinking is no part of the system's cache"
    elsewhere = await both.client.say(one, system=system, model="test-plain")
    assert elsewhere.usage.cache_read_input_tokens == 0, "a cache for each model"


async def test_a_mark_looks_back_twenty_blocks_and_no_further(pair: MakePair) -> None:
    for n_new, is_read in ((19, True), (20, False)):
        both = await pair(default="echo")
        head = user(text("h" * 400, cache_control=MARK))
        await both.client.say(head)
        blocks = [text(f"{n} " + "x" * 40) for n in range(n_new)]
        blocks[-1]["cache_control"] = MARK
        usage = (await both.client.say({**head, "content": [big("h"), *blocks]})).usage
        assert (usage.cache_read_input_tokens == 100) is is_read


async def test_small_prefixes_and_top_level_marks(pair: MakePair) -> None:
    both = await pair(default="echo", cache=CacheRules(min_tokens=101))
    assert (await both.client.say(user("a" * 400), cache_control=MARK)).usage.cache_creation_input_tokens == 0
    assert (
        await both.client.say(user("a" * 404), cache_control=MARK)
    ).usage.cache_creation_input_tokens == 101


async def test_cache_share_and_prefix_breaks(pair: MakePair) -> None:
    both = await pair(default="echo")
    say = both.client.say
    one = user(text("a" * 400, cache_control=MARK))
    reply = as_param(await say(one, system="s", tools=[BASH]))
    bare = user("a" * 400)
    await say(bare, reply, user(text("b", cache_control=MARK)), system="s", tools=[BASH])
    assert both.server.prefix_breaks() == [], "marks do not count"
    share = both.server.cache_share()
    assert share["share"] == 1.0
    assert share["read"] > 100
    await say(bare, user_free := assistant("changed"), user("b", "c"), system="s", tools=[BASH])
    assert user_free
    await say(bare, system="s", tools=[BASH])
    await say(bare, system="t", tools=[BASH])
    await say(bare, system="t")
    await say(user(f"<conversation>{'a' * 9}</conversation>"))
    found = both.server.prefix_breaks()
    assert [(item.before, item.after) for item in found] == [(2, 3), (3, 4), (4, 5), (5, 6)]
    assert [item.where.split(":")[0] for item in found] == [
        "block 1 differs", "shorter", "system differ", "tools differ"
    ]  # fmt: skip
