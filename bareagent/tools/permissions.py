"""The one gate: may a call run, by its needs, the mode and the rules.

Pure but for what the file system says of paths; asking the user is the caller's.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bareagent.config import Mode
from bareagent.sanitize import clean
from bareagent.seams import Need
from bareagent.tools.commands import Judged, judge_command
from bareagent.tools.rules import Decision, Rules, quoted_pattern
from bareagent.tools.sensitive import Places, expanded, is_free_device, is_inside, real, why_sensitive

_STRICTEST: tuple[Decision, ...] = ("allow", "ask", "deny")
PLAN_REFUSAL = "plan mode: nothing is written or run; present the plan with exit_plan"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """May a call run.

    `reason` is one plain sentence for the user and the model. `rule` is what "always" would grant for
    the session; empty when there is nothing sensible (a sensitive path, code that a rule cannot cover).
    """

    decision: Decision
    reason: str = ""
    rule: str = ""


def judge(
    needs: Sequence[Need],
    *,
    tool: str,
    mode: str,
    rules: Rules,
    root: Path,
    home: Path,
    session_folder: Path | None = None,
    program_paths: Sequence[Path] = (),
) -> Verdict:
    """Return whether a call with these needs may run: the strictest of what each need says.

    Relative paths stand on the root; `judge_in` takes a working directory and more.
    """
    places = places_of(root, home, session_folder=session_folder, program_paths=program_paths)
    return judge_in(needs, tool=tool, mode=mode, rules=rules, places=places)


def judge_in(needs: Sequence[Need], *, tool: str, mode: str, rules: Rules, places: Places) -> Verdict:
    """Return the same as `judge`, by places made once with `places_of`."""
    gate = _Gate(tool=tool, mode=_mode(mode), rules=rules, places=places)
    return _strictest([gate.judge_need(need) for need in needs or [Need(kind="other")]])


def places_of(
    root: Path,
    home: Path,
    *,
    session_folder: Path | None = None,
    program_paths: Sequence[Path] = (),
    cwd: Path | None = None,
    free_paths: Sequence[Path] = (),
    search_path: str | None = None,
) -> Places:
    """Return what paths are measured against.

    `cwd` (the root where None) is what relative paths stand on; `free_paths` are folders that are read
    without asking beside the session's snapshots and outputs, such as the skills; `search_path` is the
    PATH that commands run with (our own where None).
    """
    kept = [session_folder / "snapshots", session_folder / "outputs"] if session_folder else []
    return Places(
        root=_real(root),
        home=_real(home),
        cwd=cwd or root,
        free=[_real(path) for path in (*kept, *free_paths)],
        program=[_real(path) for path in program_paths],
        search_path=os.environ.get("PATH", os.defpath) if search_path is None else search_path,
    )


def _mode(name: str) -> Mode:
    """A mode this version does not know is the tightest one."""
    match name:
        case "default" | "auto" | "bypass":
            return name
        case _:
            return "plan"


def _real(path: Path) -> Path:
    return real(path) or path


def _shown(path: str | Path) -> str:
    """Name a path in a question; one that looks like another file's says so."""
    text = str(path)
    is_plain = clean(text) == text and "\n" not in text
    return text if is_plain else f"{text} (with invisible or control characters in its name)"


def _strictest(verdicts: Sequence[Verdict]) -> Verdict:
    worst = max(verdicts, key=lambda verdict: _STRICTEST.index(verdict.decision))
    same = [verdict for verdict in verdicts if verdict.decision == worst.decision]
    rules = {verdict.rule for verdict in same}
    reasons = list(dict.fromkeys(verdict.reason for verdict in same if verdict.reason))
    rule = rules.pop() if len(rules) == 1 else ""
    return Verdict(decision=worst.decision, reason="; ".join(reasons), rule=rule)


class _Gate(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same for all needs of a call."""

    tool: str
    mode: Mode
    rules: Rules
    places: Places

    def judge_need(self, need: Need) -> Verdict:
        match need.kind:
            case "none":
                return self._by_tool(need.target, Verdict(decision="allow"))
            case "read":
                return self._softened(self._read(need.target))
            case "write":
                return self._softened(self._write(need.target))
            case "run":
                return self._softened(self._run(need.target))
            case _:
                return self._by_tool(need.target, self._undeclared())

    def _softened(self, verdict: Verdict) -> Verdict:
        """Bypass asks nothing; what a rule denies stays denied."""
        if self.mode == "bypass" and verdict.decision == "ask":
            return Verdict(decision="allow")
        return verdict

    def _by_tool(self, target: str, otherwise: Verdict) -> Verdict:
        ruled = self.rules.for_tool(self.tool, target)
        if ruled is None:
            return self._softened(otherwise)
        decision, rule = ruled
        if decision == "allow" and otherwise.decision == "deny":
            return otherwise
        return self._softened(
            Verdict(decision=decision, reason="" if decision == "allow" else f"the rule {rule}")
        )

    def _undeclared(self) -> Verdict:
        if self.mode == "plan":
            return Verdict(decision="deny", reason=PLAN_REFUSAL)
        return Verdict(decision="ask", reason=f"{self.tool} does not say what it touches", rule=self.tool)

    def _read(self, target: str) -> Verdict:
        return self._path(target, is_write=False, unruled=self._unruled_read)

    def _write(self, target: str) -> Verdict:
        verdict = self._path(target, is_write=True, unruled=self._unruled_write)
        if self.mode == "plan" and verdict.decision != "deny":
            return Verdict(decision="deny", reason=PLAN_REFUSAL)
        return verdict

    def _path(self, target: str, *, is_write: bool, unruled: "_Unruled") -> Verdict:
        written = expanded(target, self.places)
        path = real(written)
        if path is None:
            return Verdict(decision="ask", reason=f"{target!r} leads nowhere")
        tool = "edit_file" if is_write else "read_file"
        lexical = Path(os.path.normpath(written))
        decision, rule = self._ruled(tool, [lexical, path])
        if decision in {"deny", "ask"}:
            return Verdict(decision=decision, reason=f"the rule {rule}")
        why = why_sensitive(path, self.places, is_write=is_write) or why_sensitive(
            lexical, self.places, is_write=is_write
        )
        if why:
            return Verdict(decision="ask", reason=f"{target}: {why}")
        return Verdict(decision="allow") if rule else unruled(target, path)

    def _ruled(self, tool: str, paths: Sequence[Path]) -> tuple[Decision, str]:
        """What the rules say, by the tool that stands for the deed and by the tool's own name."""
        found = [self.rules.for_path(name, paths, self.places) for name in {tool, self.tool}]
        ruled = [each for each in found if each]
        return max(ruled, key=lambda each: _STRICTEST.index(each[0]), default=("allow", ""))

    def _unruled_read(self, target: str, path: Path) -> Verdict:
        near = [self.places.root, *self.places.free]
        if is_free_device(target) or any(is_inside(path, folder) for folder in near):
            return Verdict(decision="allow")
        return Verdict(
            decision="ask",
            reason=f"{_shown(path)} is outside the workspace",
            rule=self._path_rule("read_file", path, is_narrow=not path.is_dir()),
        )

    def _unruled_write(self, target: str, path: Path) -> Verdict:
        if is_free_device(target):
            return Verdict(decision="allow")
        is_within = is_inside(path, self.places.root)
        if is_within and self.mode == "auto":
            return Verdict(decision="allow")
        reason = f"it writes {_shown(target)}" if is_within else f"{_shown(path)} is outside the workspace"
        return Verdict(
            decision="ask", reason=reason, rule=self._path_rule("edit_file", path, is_narrow=not is_within)
        )

    def _path_rule(self, tool: str, path: Path, *, is_narrow: bool) -> str:
        """Return the rule "always" would make: the file's folder in the workspace, elsewhere the file."""
        if not str(path).isprintable() or "(" in str(path) or ")" in str(path):
            return ""
        if is_inside(path, self.places.root) and path != self.places.root:
            relative = path.relative_to(self.places.root)
            if relative.parent == Path():
                return f"{tool}(./{quoted_pattern(relative.as_posix())})"
            return f"{tool}({quoted_pattern(relative.parent.as_posix())}/**)"
        if path == Path("/"):
            return ""
        return f"{tool}({quoted_pattern(path.as_posix())}{'' if is_narrow else '/**'})"

    def _run(self, command: str) -> Verdict:
        judged = judge_command(command, self.rules, self.places)
        if judged.denied:
            return Verdict(decision="deny", reason=f"the rule {judged.denied}")
        paths = [self._read(path) for path in judged.reads] + [self._write(path) for path in judged.writes]
        return _strictest([self._words(judged), *paths])

    def _words(self, judged: Judged) -> Verdict:
        match self.mode:
            case "bypass":
                return self._unchecked(judged)
            case "plan":
                is_fine = judged.is_safe and not judged.asked
                return Verdict(decision="allow") if is_fine else Verdict(decision="deny", reason=PLAN_REFUSAL)
            case "auto":
                is_fine = judged.is_safe or judged.is_granted
            case _:
                is_fine = judged.is_granted
        if is_fine and not judged.asked:
            return Verdict(decision="allow")
        return Verdict(
            decision="ask", reason=judged.asked or judged.reason, rule="" if judged.asked else judged.rule
        )

    def _unchecked(self, judged: Judged) -> Verdict:
        """A deny rule must not be slipped past by a command whose words cannot be read."""
        if judged.is_opaque and any(rule.tool == "bash" for rule in self.rules.deny):
            return Verdict(
                decision="deny",
                reason="deny rules for bash cannot be checked on this command; write it plainly",
            )
        return Verdict(decision="allow")


_Unruled = Callable[[str, Path], Verdict]
