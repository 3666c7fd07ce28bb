"""Faults that users of other agents met in long conversations, provoked through the program's doors."""

import json
from pathlib import Path

from tests.screen import repl
from tests.server.fixtures import StartServer


def test_an_empty_answer_is_followed_by_a_line_that_says_why_and_no_line_of_the_users(
    start_server: StartServer, project: Path, home: Path
) -> None:
    server = start_server([{"empty": True}, "here I am", "and on"])
    with repl(project, home=home, server=server) as t:
        t.enter("are you there")
        t.wait("here I am")
        t.wait_prompt()
        assert "The answer was empty; asked to go on." in t.text
        t.enter("/retry")
        t.wait("and on")
        t.wait_prompt()
        assert "The answer ended; asked to go on." in t.text
        assert "> Continue." not in t.text
        assert t.leave() == 0
    assert "Continue." in json.dumps(server.requests[1].body)
