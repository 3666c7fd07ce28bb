"""Ways out of the workspace and around a command rule: none succeeds silently; everyday commands do not ask."""

import os
import subprocess
from pathlib import Path

import pytest

from bareagent.seams import Need
from bareagent.tools.permissions import Verdict, judge_in, places_of
from bareagent.tools.rules import Rules

MODES = ("plan", "default", "auto")


class World:
    """A home with keys, a workspace with links out of it, and a session of its own."""

    def __init__(self, top: Path) -> None:
        self.home = top / "home"
        self.root = self.home / "work"
        self.outside = top / "outside"
        self.session = self.root / ".transcripts" / "20261130-014853-k3f7"
        for folder in (self.root / "src", self.outside, self.home / ".ssh", self.session / "outputs"):
            folder.mkdir(parents=True)
        (self.session / "snapshots").mkdir()
        for path in (self.home / ".ssh" / "id_rsa", self.outside / "secret.txt", self.home / ".bashrc"):
            path.write_text("secret\n")
        (self.root / "src" / "a.py").write_text("print(1)\n")
        (self.root / "README.md").write_text("# hello\nTODO\n")
        (self.root / "data.json").write_text("{}\n")
        (self.root / ".env").write_text("KEY=1\n")
        subprocess.run(["git", "init", "-q", "-b", "main", self.root], check=True)
        self._links()

    def _links(self) -> None:
        root = self.root
        (root / "link").symlink_to(self.outside / "secret.txt")
        (root / "folder").symlink_to(self.outside)
        (root / "dangling").symlink_to(self.outside / "not-yet")
        (root / "chain").symlink_to(root / "folder")
        (root / "relative").symlink_to("../.ssh")
        (root / "loop").symlink_to(root / "loop")
        (root / "key").hardlink_to(self.home / ".ssh" / "id_rsa")
        (root / "twin").hardlink_to(self.outside / "secret.txt")

    def judge(
        self, *needs: Need, tool: str = "bash", mode: str = "auto", rules: Rules | None = None
    ) -> Verdict:
        places = places_of(
            self.root,
            self.home,
            session_folder=self.session,
            program_paths=[self.home / ".config" / "bareagent"],
        )
        return judge_in(needs, tool=tool, mode=mode, rules=rules or Rules(), places=places)

    def command(self, text: str, *, mode: str = "auto", rules: Rules | None = None) -> Verdict:
        return self.judge(Need(kind="run", target=text), mode=mode, rules=rules)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


READS_OUT = [
    "/etc/passwd", "~/.ssh/id_rsa", "../.ssh/id_rsa", "src/../../.ssh/id_rsa", "link", "folder/secret.txt",
    "chain/secret.txt", "chain", "folder/../secret.txt", "relative/id_rsa", "loop", "loop/x", "key", "~", "..",
    "~root/.bashrc", "/proc/self/environ", "/proc/self/cwd/../.bashrc", "src/\0/../../x", "//etc/passwd",
    "/dev/sda", "./../work/../.bashrc", "folder/./../outside/secret.txt",
]  # fmt: skip
WRITES_OUT = [
    "/tmp/x", "~/.bashrc", "../new", "dangling", "folder/new", "folder/../new", "link", "twin", "key",
    "relative/authorized_keys", "chain/x/y/z", "/etc/cron.d/x", "src/../../new", "loop/new",
]  # fmt: skip
SENSITIVE = [
    ".env", ".env.local", "src/prod.env", "server.pem", "id_ed25519", ".git/hooks/pre-commit", ".git/config",
    ".GIT/hooks/pre-commit", ".Env", ".e\u200bnv", "\uff0eenv", ".bareagent/config.toml", ".bashrc", ".npmrc",
    ".transcripts/20261130-014853-aaaa/log.jsonl", ".transcripts/20261130-014853-k3f7/log.jsonl",
    "sub/.git/config", ".git/modules/x/hooks/post-checkout", ".git/worktrees/x/config.worktree",
]  # fmt: skip


@pytest.mark.parametrize("path", READS_OUT)
def test_no_read_leaves_the_workspace_silently(world: World, path: str) -> None:
    for mode in MODES:
        verdict = world.judge(Need(kind="read", target=path), tool="read_file", mode=mode)
        assert verdict.decision != "allow", mode


@pytest.mark.parametrize("path", WRITES_OUT)
def test_no_write_leaves_the_workspace_silently(world: World, path: str) -> None:
    for mode in MODES:
        verdict = world.judge(Need(kind="write", target=path), tool="write_file", mode=mode)
        assert verdict.decision != "allow", mode


@pytest.mark.parametrize("path", SENSITIVE)
@pytest.mark.parametrize("kind", ["read", "write"])
def test_sensitive_paths_ask_even_when_allowed(world: World, path: str, kind: str) -> None:
    rules = Rules.of(allow=["read_file", "edit_file", "read_file(**)", "edit_file(**)"])
    need = Need(kind="read" if kind == "read" else "write", target=path)
    verdict = world.judge(need, tool="edit_file" if kind == "write" else "read_file", rules=rules)
    assert verdict.decision == "ask"
    assert not verdict.rule


READING_COMMANDS = [
    "cat /etc/passwd", "cat ~/.ssh/id_rsa", "cat ../.ssh/id_rsa", "cat link", "cat folder/secret.txt", "cat key",
    "cat .env", "head -n1 .env", "grep KEY .env", "sed -n 1p .env", "sort < ../.bashrc", "cat < link",
    "cat <../.bashrc", "cd .. && cat .bashrc", "cd folder && cat secret.txt", "(cd /etc; cat passwd)",
    "cd src; cat ../../.bashrc", "cd ~; ls", "cd; cat .bashrc", "cd -; cat .bashrc", 'cat "$HOME/.ssh/id_rsa"',
    "cat $HOME/.bashrc", "cat ~root/.bashrc", "cat {../.bashrc,README.md}", "cat $'\\x2e\\x2e/.bashrc'",
    "cat ../.bash*", "cat ../*/id_rsa", "cat .e*", "cat link*", "ls /etc", "find / -name id_rsa",
    "find .. -name '*.pem'", "grep -r secret ..", "grep -f ../.bashrc README.md", "rg secret ~",
    "rg --pre ./x a", "git diff --no-index /dev/null ../.bashrc", "git -C .. status", "git show HEAD:.env",
    "git log --output=../x", "git diff ../.bashrc README.md", "wc -l --files0-from=../x", "tail -F ../.bashrc",
    "diff README.md ../.bashrc", "sort README.md -o ../x", "sort -T .. README.md", "cp README.md ../x",
    "ln -s .. up", "echo hi > ../x", "echo hi >> ~/.bashrc", "echo hi > link", "echo hi > dangling", "> folder/x",
    "echo hi &> ../x", "echo hi >| ../x", "echo hi >& ../x", "cat <> ../x", "tee ../x < README.md",
    "mkdir ../x", "touch dangling", "mkdir -p folder/x", "echo hi > .git/hooks/pre-commit", "echo x > .env",
    "xargs cat < README.md", "find . -exec cat {} +", "find .. -exec grep -l x {} \\;", "ps eww", "env", "printenv",
    "cat /dev/tcp/example.com/80", "echo x > /dev/tcp/127.0.0.1/80", "date -f ../.bashrc", "file -f ../.bashrc",
    "awk 'BEGIN{ARGV[1]=\"../.bashrc\";ARGC=2}{print}' README.md", "jq -n 'env'", "jq -n '$ENV.HOME'",
    "uniq README.md ../x",
    "xxd -r README.md ../x", "sed -n 'r ../.bashrc' README.md", "sed -n 'w ../x' README.md",
    "sed '1e id' README.md", "cat -- ../.bashrc", "cat ./src/../../.bashrc", "ls -la relative", "strings @../x",
    "tree -o ../x", "od -c ../.bashrc", "du -a ~", "stat ~/.ssh/id_rsa", "readlink -f link",
]  # fmt: skip


@pytest.mark.parametrize("text", READING_COMMANDS)
def test_no_command_reads_or_writes_outside_silently(world: World, text: str) -> None:
    for mode in MODES:
        assert world.command(text, mode=mode).decision != "allow", mode


AROUND_A_RULE = [
    "git status && rm x", "git status; rm x", "git status\nrm x", "git status | rm x", "git status || rm x",
    "git status & rm x", "git status |& sh", "git status $(rm x)", "git status `rm x`", 'git status "$(rm x)"',
    'git status "`rm x`"', "git status <(rm x)", "git status > >(rm x)", "FOO=1 git status", "PATH=. git status",
    "LD_PRELOAD=./x.so git status", "GIT_PAGER='rm x' git log", "GIT_EXTERNAL_DIFF=./x git diff", "env git push",
    "env FOO=1 git status", "env -S 'rm x'", "env -i rm x", "git -c alias.status='!rm x' status",
    "git -c core.fsmonitor=./x status", "git --exec-path=. status", "git statusx", "gitstatus", "./git status",
    "/tmp/git status", "git$IFS'push'", "git${IFS}push", "$GIT status", "g\\\nit push", "git sta\u200btus",
    "\u0261it status", "git\u00a0status", "git status\r\nrm x", "git status\x0brm x", "alias git=rm; git status",
    "git() { rm x; }; git status", "function git { rm x; }; git status", "eval git status '; rm x'",
    "exec git push", "command git push", "builtin eval rm x", "sudo git status", "xargs git push < x",
    "find . -exec rm {} ;", "find . -exec rm {} \\;", "find . -exec sh -c 'rm x' \\;", "find . -delete",
    "find . -execdir rm {} +", "find . -ok rm {} \\;", "find . -fprintf x y", "find . {-delete,}", "find . $X",
    "sh -c 'git status; rm x'", "bash -c \"$X\"", "bash <<< 'rm x'", "bash <<EOF\nrm x\nEOF", "echo rm x | sh",
    "cat <<EOF\n$(rm x)\nEOF", "cat <<EOF\n`rm x`\nEOF", "cat << A << B\nA\nB\nrm x", "time rm x", "nice rm x",
    "nohup rm x", "timeout 5 rm x", "timeout 5 sh -c 'rm x'", "stdbuf -o0 rm x", "setsid rm x", "coproc rm x",
    "if git status; then rm x; fi", "for i in 1; do rm x; done", "while rm x; do :; done", "case a in a) rm x;; esac",
    "(git status; rm x)", "{ git status; rm x; }", "! rm x", "git status #\nrm x", "git status \\\n; rm x",
    "git status\\\n#; rm x", "[[ -v 'a[$(rm x)]' ]]", "[[ a -eq 'b[$(rm x)]' ]]", "test -v 'a[$(rm x)]'",
    "echo $((a[$(rm x)]))", "echo ${x:=$(rm x)}", "echo ${x@P}", "(( a[$(rm x)] ))", "printf -v 'a[$(rm x)]' 1",
    "trap 'rm x' EXIT", "source x", ". ./x", "git log --output=x", "git diff --output x", "git diff --outpu=x",
    "git diff --ext-diff", "git grep -O./x a", "git branch x", "git branch -D x", "git branch -v x", "git tag x",
    "git config core.pager x", "git stash", "git stash drop", "git remote add a b", "git worktree add x",
    "git bisect run rm x", "git submodule foreach rm x", "git rebase -x 'rm x' main", "git reflog expire --all",
    "git push", "git commit -m x", "git checkout .", "git clean -fd", "git reset --hard", "git help status",
    "python -c 'import os'", "python3 -c 1", "python -Ic 1", "python -W error -c 1", "python - < x", "python < x",
    "echo 1 | python", "node -e 1", "node -pe 1", "perl -e 1", "perl -ne 1 x", "ruby -e 1", "php -r 1", "lua -e 1",
    "awk 'BEGIN{system(\"rm x\")}'", "awk '{print > \"x\"}' a", "awk '{print | \"sh\"}' a", "awk -f x a",
    "sed -i s/a/b/ README.md", "sed 's/a/b/w x' a", "sed 's/a/b/e' a", "sed -n '1w x' a", "sed -f x a",
    "sort -o x a", "sort --output=x a", "sort --outp=x a", "sort --compress-program=./x a", "rg --pre=./x a",
    "rg --hostname-bin=./x a", "tee x", "dd of=x", "rm -rf .", "mv a b", "cp a b", "chmod +x a", "curl x", "make",
    "npm test", "npx x", "pip install x", "ssh host", "kill 1", "tar cf x .", "tar --to-command=sh xf a",
    "{rm,x}", "\\rm x", "'rm' x", '"rm" x', "r''m x", "$'rm' x", "~/rm x", "*/rm", "ls & ", "cat a | xargs rm",
    "ls; set -e; rm x", "cat <<'EOF' | sh\nrm x\nEOF", "echo $(echo $(rm x))", "vim -c '!rm x'", "man -P ./x ls",
    "mapfile -C 'rm x' a", "read -r x < README.md", "export A=1", "declare A=1", "unset PATH", "hash -p ./x git",
    "enable -f ./x y", "ls >$X", "ls > *", "uniq a b", "hostname evil", "date -s 1", "tail -f README.md",
]  # fmt: skip


@pytest.mark.parametrize("text", AROUND_A_RULE)
def test_nothing_slips_past_an_allow_rule(world: World, text: str) -> None:
    rules = Rules.of(
        allow=["bash(git status:*)", "bash(find:*)", "bash(python:*)", "bash(node:*)", "bash(xargs:*)"]
    )
    for mode in MODES:
        assert world.command(text, mode=mode, rules=rules).decision != "allow", mode


DENIED = [
    "rm x", "/bin/rm x", "\\rm x", "'rm' x", "r''m x", "ls && rm x", "ls; rm x", "ls | xargs rm", "env rm x",
    "env A=1 rm x", "sudo rm x", "sudo -u root rm x", "nice -n 5 rm x", "timeout -k 1 5 rm x", "sh -c 'rm x'",
    "bash -c 'ls; rm x'", "find . -exec rm {} +", "$(rm x)", "echo `rm x`", "cat <(rm x)", "(rm x)", "A=1 rm x",
    "A=$(rm x)", "f() { rm x; }; f", "if true; then rm x; fi", "for i in a; do rm $i; done", "rm x &", "eval 'rm x'",
    "eval rm x", "command rm x", "exec rm x", "time rm x", "watch rm x", "git -C .. push", "git -c a=b push",
    "git --no-pager push", "git push origin", "/usr/bin/git push", "trap 'rm x' EXIT", "xargs -I{} rm {}",
    "env -S 'rm x'", "nohup rm x", "bash -xc 'rm x'",
]  # fmt: skip


@pytest.mark.parametrize("text", DENIED)
def test_a_denied_command_is_denied_in_every_dress(world: World, text: str) -> None:
    rules = Rules.of(allow=["bash"], deny=["bash(rm:*)", "bash(git push:*)"])
    for mode in (*MODES, "bypass"):
        assert world.command(text, mode=mode, rules=rules).decision == "deny", mode


@pytest.mark.parametrize(
    "text",
    [
        "$X x",
        "r$X x",
        "git $X",
        "eval $X",
        "bash -c $X",
        "'",
        "cat <<EOF\n$(rm x)\nEOF",
        "{rm,x}",
        "xargs $X",
    ],
)
def test_what_cannot_be_checked_against_deny_rules_never_runs_unasked(world: World, text: str) -> None:
    rules = Rules.of(deny=["bash(rm:*)", "bash(git push:*)"])
    assert world.command(text, mode="bypass", rules=rules).decision == "deny"
    assert world.command(text, mode="bypass").decision == "allow"
    assert world.command(text, mode="auto", rules=rules).decision == "ask"


EVERYDAY = [
    "ls", "ls -la", "ls -la src", "pwd", "cat README.md", "head -20 README.md", "head -n 20 README.md",
    "tail -n 5 README.md", "wc -l README.md src/a.py", "wc -l src/*.py", "echo hello", 'echo "$HOME"', "echo $?",
    "which python3", "python3 --version", "git --version", "git status", "git status --short", "git status -sb",
    "git log --oneline -5", "git log -n 3 --stat", "git log --format='%h %s' HEAD", "git diff", "git diff --stat",
    "git diff --cached", "git diff HEAD~1 -- src", "git show HEAD", "git show --stat HEAD~2", "git branch",
    "git branch -a", "git branch --show-current", "git remote -v", "git rev-parse HEAD", "git ls-files",
    "git blame src/a.py", "git stash list", "git tag", "git --no-pager log -1", "rg TODO", "rg -n 'def \\w+' src",
    "rg --files", "rg -i todo -g '*.py' src", "grep -n TODO README.md", "grep -rn TODO src", "grep -c '^def' src/a.py",
    "grep -E 'a|b' README.md", "grep '/api/v1' README.md", "find . -name '*.py'", "find src -type f -maxdepth 2",
    "find . -name '*.py' -not -path './.git/*'", "sed -n '1,20p' README.md", "sed -n 5p README.md",
    "sed 's/a/b/g' README.md", "awk '{print $1}' README.md", "awk -F: '{print $2}' README.md", "sort README.md",
    "sort -u README.md | uniq -c | sort -rn | head", "cut -d: -f1 README.md", "tr a-z A-Z < README.md",
    "diff README.md src/a.py", "du -sh .", "df -h", "stat README.md", "file README.md", "date", "date +%F", "whoami",
    "uname -a", "id", "basename src/a.py", "dirname src/a.py", "realpath src", "test -f README.md && echo yes",
    "[ -d src ] || echo no", "[[ -f README.md ]] && cat README.md", "cd src && ls", "cd src && cat a.py | head -3",
    "(cd src && ls -l)", "cat README.md | grep TODO | wc -l", "ls 2>/dev/null", "ls nothing 2>&1", "ls > /dev/null",
    "true", "sleep 1", "command -v git", "type ls", "for f in a b; do echo $f; done", "printf '%s\\n' a b",
    "cat <<'EOF'\nhello\nEOF", "if [ -f README.md ]; then echo yes; fi", "ls; pwd; date", "ls\npwd",
    "jq . data.json", "jq -r '.a' data.json", "mkdir -p src/sub", "touch src/new.py", "echo hi > src/new.txt",
    "cat README.md >> src/log.txt", "echo $((1 + 2))", "time ls", "timeout 5 ls", "nice ls", "bash -c 'ls -l'",
    "env ls", "xargs echo < README.md", "find . -name '*.py' -exec echo found \\;", "ls -la # all of it",
    "ls \\\n  -la", "set -e; ls", "set -euo pipefail\nls", "seq 3", "comm README.md src/a.py", "nl README.md",
    "md5sum README.md", "git config --get user.name", "git grep -n TODO", "git describe --tags", "ps aux",
    "cat 文件.txt", "rg '中文' src", "ls src/*.py src/?.py",
]  # fmt: skip


@pytest.mark.parametrize("text", EVERYDAY)
def test_everyday_commands_do_not_ask_in_auto(world: World, text: str) -> None:
    verdict = world.command(text)
    assert verdict.decision == "allow", verdict.reason


def test_the_matrix_is_as_large_as_promised() -> None:
    assert len(READS_OUT) + len(WRITES_OUT) + len(READING_COMMANDS) >= 40
    assert len(AROUND_A_RULE) >= 60
    assert len(EVERYDAY) >= 50
    assert os.sep == "/"
