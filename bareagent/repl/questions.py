"""Questions to the user, asked in place: may a call run, which of these, is the plan good."""

import json
from typing import Literal

from bareagent.cells import cells
from bareagent.messages import Block
from bareagent.repl import view
from bareagent.repl.markdown import render
from bareagent.repl.styles import Styles
from bareagent.repl.view import paint
from bareagent.sanitize import clean, one_line
from bareagent.seams import Answer, Question

Writing = Literal["", "comment", "edit", "free"]
_ON_ENTER = {"edit": "runs it", "comment": "says no with these words", "free": "answers"}
SMALL_ROWS = 6
"""With fewer rows the keys alone are named."""


class Panel:
    """A question in front of the user and what they have answered so far.

    `writing` says what the text line is for, once a key has opened it. The default is no.
    """

    def __init__(self, question: Question, *, is_confirm: bool = False) -> None:
        """Ask; nothing is answered yet. `is_confirm`: yes or no are all the answers."""
        self.question = question
        self.is_confirm = is_confirm
        self.writing: Writing = ""
        if question.kind == "choice" and not question.options:
            self.writing = "free"

    def knows(self, char: str) -> bool:
        """Tell whether a key means something here."""
        if char == "\r":
            return self.question.kind != "choice"
        options = self.question.options
        if self.question.kind == "choice":
            return char in {"t", "n"} or (char.isdigit() and 1 <= int(char) <= len(options))
        known = {"y", "n"} | ({"a"} if self.can_always else set()) | ({"e"} if self.can_edit else set())
        return char in known or (char == "c" and not self.is_confirm)

    def key(self, char: str) -> Answer | None:
        """Take a key: an answer, or None where it gives none (yet)."""
        if self.question.kind == "choice":
            return self._chosen(char)
        match char:
            case "y":
                return Answer(verdict="yes")
            case "n" | "\r":
                return Answer(verdict="no")
            case "a" if self.can_always:
                return Answer(verdict="always")
            case "c" if not self.is_confirm:
                self.writing = "comment"
            case "e" if self.can_edit:
                self.writing = "edit"
        return None

    def _chosen(self, char: str) -> Answer | None:
        options = self.question.options
        if char.isdigit() and 1 <= int(char) <= len(options):
            return Answer(verdict="yes", text=options[int(char) - 1])
        if char == "t":
            self.writing = "free"
        return Answer(verdict="no") if char == "n" else None

    def written(self, text: str) -> Answer:
        """Return the answer that a text given on the line makes."""
        match self.writing:
            case "edit":
                return Answer(verdict="edit", text=text) if text.strip() else Answer(verdict="no")
            case "free":
                return Answer(verdict="yes", text=text) if text.strip() else Answer(verdict="no")
        return Answer(verdict="no", text=text.strip())

    @property
    def can_always(self) -> bool:
        """The answer `always` has a meaning: a rule to grant, a plan to carry out without more questions."""
        return bool(self.question.rule) or self.question.kind == "plan"

    @property
    def can_edit(self) -> bool:
        """The command may be changed."""
        return self.question.kind == "permission" and self.question.detail_as == "command"

    def start_text(self) -> str:
        """Return what the text line begins with."""
        return self.question.detail if self.writing == "edit" else ""

    # Looks

    def label(self) -> str:
        """Return what stands before the text line."""
        labels = {"edit": "command> ", "comment": "why not> ", "free": "answer> "}
        return labels.get(self.writing, "")

    def rows(self, width: int, max_rows: int, styles: Styles) -> list[str]:
        """Return the panel in at most `max_rows` rows; what does not fit is said and Ctrl-O shows it."""
        head = self._head(width, styles)
        foot = self._foot(width, styles)
        if max_rows < max(SMALL_ROWS, 2 * len(foot)):
            foot = self._foot(width, styles, is_short=True)
        head = head[: max(max_rows - len(foot), 0)]
        room = max(max_rows - len(head) - len(foot), 0)
        body = self.body(width, styles)
        if len(body) > room:
            kept = max(room - 1, 0)
            missing = f"… {len(body) - kept} more rows (Ctrl-O shows all)"
            body = [*body[:kept], paint(view.cut(missing, width), styles.warning)][:room]
        return [*head, *body, *foot]

    def _head(self, width: int, styles: Styles) -> list[str]:
        question = self.question
        run = "run and stay in the background" if question.is_background else "run"
        texts = {"permission": f"May {one_line(question.title, 60)} {run}?" if not self.is_confirm else ""}
        title = texts.get(question.kind) or clean(question.title)
        if question.agent:
            title = f"Subagent {one_line(question.agent, 80)} asks: {title}"
        rows = [paint(row, styles.strong) for row in view.wrapped(title, width)]
        if question.reason:
            rows += [paint(row, styles.warning) for row in view.wrapped(clean(question.reason), width)[:2]]
        return rows

    def body(self, width: int, styles: Styles) -> list[str]:
        """Return the whole detail: a command, a diff, a plan, the options."""
        question = self.question
        rows: list[str] = []
        match question.detail_as:
            case "command":
                rows = ["  " + row for row in view.wrapped(clean(question.detail), max(width - 2, 2))]
            case "diff":
                rows = view.diff_rows(question.detail, width, styles, limit=10_000)
            case "markdown":
                rows = render(question.detail, width, styles).splitlines()
            case "text" if question.detail:
                rows = ["  " + row for row in view.wrapped(clean(question.detail), max(width - 2, 2))]
        options = [f"  {n}. {one_line(text, 500)}" for n, text in enumerate(question.options, 1)]
        return rows + [row for text in options for row in view.wrapped(text, width)]

    def _foot(self, width: int, styles: Styles, *, is_short: bool = False) -> list[str]:
        if self.writing:
            keys = f"Enter {_ON_ENTER[self.writing]}" + ("" if self.writing == "free" else ", Esc goes back")
            return [] if is_short else [paint(view.cut(keys, width), styles.accent)]
        if is_short:
            keys = "/".join(choice.split()[0] for choice in self._choices())
            return [paint(view.cut(f"{keys}?", width), styles.accent)]
        rows: list[str] = []
        for choice in self._choices():
            if rows and cells(rows[-1]) + 3 + cells(choice) <= width:
                rows[-1] += f"   {choice}"
            else:
                rows += view.wrapped(choice, width)
        return [paint(row, styles.accent) for row in rows]

    def _choices(self) -> list[str]:
        if self.is_confirm:
            return ["y yes", "n no"]
        if self.question.kind == "choice":
            n = len(self.question.options)
            return [f"1-{n} choose" if n > 1 else "1 choose", "t answer in words", "n no answer"]
        if self.question.kind == "plan":
            return ["y carry it out", "a and allow edits", "n keep planning", "c no, and say why"]
        always = [f"a this session: {one_line(self.question.rule, 200)}"] if self.question.rule else []
        edit = ["e edit"] if self.can_edit else []
        return ["y once", *always, "n no", "c no, and say why", *edit]

    def plain(self) -> str:
        """Return the question in plain lines, for a terminal that only takes lines."""
        styles = Styles()
        return "\n".join([*self._head(100, styles), *self.body(100, styles), *self._foot(100, styles)])


def shown_input(call: Block) -> str:
    """Return a call's arguments as text, for the pager."""
    return json.dumps(call.get("input"), ensure_ascii=False, indent=1)
