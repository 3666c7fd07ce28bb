"""Faults of long conversations, provoked through the whole program: in a terminal and in plain lines."""

import json
from pathlib import Path

from tests.program import run
from tests.screen import repl
from tests.server.fixtures import StartServer

SUMMARY = {"summary": True, "text": "The work goes on.", "repeat": True}


def test_an_empty_answer_is_followed_by_a_line_that_says_why_and_no_line_of_the_users(
    start_server: StartServer, project: Path, home: Path
) -> None:
    server = start_server([{"empty": True}, "here I am", "and on"])
    with repl(project, home=home, server=server) as t:
        t.enter("are you there")
        t.wait("here I am")
        t.wait_prompt()
        t.wait("The answer was empty; asked to go on.")
        t.enter("/retry")
        t.wait("and on")
        t.wait_prompt()
        t.wait("The answer ended; asked to go on.")
        assert "> Continue." not in t.text
        assert t.leave() == 0
    assert "Continue." in json.dumps(server.requests[1].body)


def test_a_window_set_too_small_for_the_system_prompt_is_said_once_and_stops_nothing(
    start_server: StartServer, project: Path, home: Path
) -> None:
    (project / "AGENTS.md").write_text("Always be kind. " * 2_000)
    settings = home / ".config" / "bareagent" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '[models."claude-sonnet-4-5"]\nwindow = 8000\n[provider]\nmodel = "claude-sonnet-4-5"\n'
    )
    server = start_server(default="echo")
    done = run([], project, home=home, server=server, stdin="one\ntwo\nthree\n")
    assert "echo: three" in done.stdout, done.stdout
    assert done.stdout.count("System prompt and tools alone take") == 1, done.stdout
    assert [record.is_summary for record in server.requests] == [False] * 3


def test_project_instructions_stand_once_in_each_request_after_a_compaction_too(
    start_server: StartServer, project: Path, home: Path
) -> None:
    rule = "End each answer with the line -- checked --.\n"
    (project / "AGENTS.md").write_text(rule + "More words of advice. " * 1_300)
    server = start_server([SUMMARY], default="echo")
    lines = "one\ntwo\nthree\n/compact\nfour\n"
    done = run([], project, home=home, server=server, stdin=lines)
    assert "Context compaction finished." in done.stdout, done.stdout
    turns = [record for record in server.requests if not record.is_summary]
    assert [json.dumps(record.body).count("-- checked --") for record in turns] == [1] * 4
    assert all(rule in record.system_text for record in turns)
    (asked,) = [record for record in server.requests if record.is_summary]
    assert "-- checked --" not in json.dumps(asked.body)
    assert len(turns[3].raw) < len(turns[2].raw) + 1_000


def test_a_skill_called_by_a_line_is_not_called_again_after_a_compaction(
    start_server: StartServer, project: Path, home: Path
) -> None:
    skill = project / ".bareagent" / "skills" / "release" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: release\ndescription: Releases.\n---\nStep one: tag $ARGUMENTS at once.\n")
    server = start_server([SUMMARY], default="echo")
    lines = "hello\n/release 1.2\none\ntwo\n/compact\nthanks\n"
    done = run([], project, home=home, server=server, stdin=lines)
    assert "Context compaction finished." in done.stdout, done.stdout
    called, last = server.requests[1], server.requests[-1]
    assert "Step one: tag 1.2 at once." in called.last_text
    assert last.last_text == "thanks"
    before, _, after = json.dumps(last.body["messages"], ensure_ascii=False).partition("taken up already")
    assert "Step one" not in before
    assert "Step one: tag 1.2 at once." in after


def test_compact_typed_into_an_answer_at_the_threshold_compacts_once(
    start_server: StartServer, project: Path, home: Path
) -> None:
    long = {"match": "tell", "text": "a long answer " * 800, "chunk": 200, "delay_s": 0.02}
    server = start_server([SUMMARY, long], default="echo")
    with repl(project, home=home, server=server, env={"BAREAGENT_COMPACTION_THRESHOLD": "2500"}) as t:
        for line in ("one", "two"):
            t.enter(line)
            t.wait(f"echo: {line}")
            t.wait_prompt()
        t.enter("tell me much")
        t.wait("a long answer")
        t.enter("/compact")
        t.wait("Context compaction finished.")
        t.wait_prompt()
        t.enter("thanks")
        t.wait("echo: thanks")
        t.wait_prompt()
        assert t.leave() == 0
    assert [record.is_summary for record in server.requests] == [False, False, False, True, False]


def test_what_is_typed_while_it_compacts_by_itself_is_sent_in_order_and_the_draft_stays(
    start_server: StartServer, project: Path, home: Path
) -> None:
    slow = {**SUMMARY, "fault": {"kind": "stall", "at": "headers"}}
    server = start_server([slow, "long " * 1_500], default="echo")
    with repl(project, home=home, server=server, env={"BAREAGENT_COMPACTION_THRESHOLD": "1500"}) as t:
        t.enter("tell me much")
        t.wait("long long")
        t.wait_prompt()
        t.enter("first")
        t.wait("compacting")
        t.enter("second")
        t.enter("third")
        t.type("half a thou")
        t.wait(lambda t: t.draft == "half a thou")
        server.release()
        t.wait("echo: third")
        t.wait_prompt()
        t.wait(lambda t: t.draft == "half a thou")
        t.press("c-c")
        assert t.leave() == 0
    sent = [record.last_text for record in server.requests if not record.is_summary]
    assert sent == ["tell me much", "first", "second", "third"]
    assert sum(record.is_summary for record in server.requests) == 1
