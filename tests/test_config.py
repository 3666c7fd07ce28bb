"""Settings: layers, errors that name their place, what a project may set, the example file."""

import tomllib
from pathlib import Path

import pytest

from bareagent.config import Config
from bareagent.config_doc import example, keys, reference
from bareagent.config_load import load
from bareagent.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent


def file(folder: Path, text: str, name: str = "config.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_layers_override_in_order(tmp_path: Path) -> None:
    user = file(tmp_path, "[ui]\nresult_lines = 1\nvi = true\n[reminder]\nrounds = 9\n")
    project = file(tmp_path, "[ui]\nresult_lines = 2\n", "project.toml")
    env = {"BAREAGENT_UI_RESULT_LINES": "3", "BAREAGENT_TOOLS_BASH_TIMEOUT_S": "7.5"}
    assert load(user, None, {}).config.ui.result_lines == 1
    assert load(user, project, {}).config.ui.result_lines == 2
    assert load(user, project, env).config.ui.result_lines == 3
    loaded = load(user, project, env, {"ui.result_lines": 4})
    assert loaded.config.ui.result_lines == 4
    assert loaded.config.ui.vi
    assert loaded.config.reminder.rounds == 9
    assert loaded.config.tools.bash.timeout_s == 7.5


def test_missing_files_are_defaults(tmp_path: Path) -> None:
    assert load(tmp_path / "no.toml", None, {}).config == Config()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n[compaction]\nkeep_recent = 2\n", ":3: [compaction] keep_recent: expected int >= 3, not 2"),
        ("[ui]\nfoo = 1\n", ":2: [ui] foo: no such setting"),
        ("foo = 1\n", ":1: foo: no such setting"),
        (
            '[compaction]\nmicro = "x"\n',
            ':2: [compaction] micro: expected "auto" or "eager" or "off", not \'x\'',
        ),
        ("[compaction]\nprotect = [1]\n", ":2: [compaction] protect[0]: expected str, not 1"),
        ("[compaction]\nthreshold = 5\n", ":2: [compaction] threshold: expected a number"),
        ("[compaction]\nrent = 1e9\n", ":2: [compaction] rent: expected float <= 100"),
        ('[models."a.b"]\nwindow = 3\n', ':2: [models."a.b"] window: expected int >= 64, not 3'),
        ('[models."a.b"]\nwindo = 3\n', ':2: [models."a.b"] windo: no such setting'),
        ("[tools]\nbash = 1\n", ":2: [tools] bash: expected object, not 1"),
        ("[ui]\nresult_line = 1\n", "did you mean ui.result_lines?"),
        ("a = [\n", "is no valid TOML"),
    ],
)
def test_errors_name_file_line_key_and_what_was_expected(tmp_path: Path, text: str, said: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path, None, {})
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_unknown_variable_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean BAREAGENT_COMPACTION_THRESHOLD\?"):
        load(None, None, {"BAREAGENT_COMPACTION_TRESHOLD": "1"})
    with pytest.raises(ConfigError, match=r"environment: \[compaction\] keep_recent: expected int"):
        load(None, None, {"BAREAGENT_COMPACTION_KEEP_RECENT": "many"})


def test_not_utf8_is_said(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"[ui]\n# \xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load(path, None, {})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[provider]\nbase_url = "http://evil"\n', "base_url"),
        ('[provider]\napi_key_env = "HOME"\n', "api_key_env"),
        ('[providers.x]\nbase_url = "http://evil"\n', "base_url"),
        ('[permissions]\nmode = "bypass"\n', "mode"),
        ('[permissions]\nmode = "auto"\n', "mode"),
        ('[permissions]\nallow = ["bash(rm:*)"]\n', "allow"),
        ('[tools.bash]\nenv_pass = ["ANTHROPIC_API_KEY"]\n', "env_pass"),
        ('[session]\ndir = "/tmp"\n', "dir"),
        ("[session]\nredact = false\n", "redact"),
        ('[compaction]\nmodel = "dear"\n', "model"),
        ("[limits]\nturns = 5000\n", "turns"),
    ],
)
def test_a_project_may_not_loosen(tmp_path: Path, text: str, key: str) -> None:
    project = file(tmp_path, text)
    loaded = load(None, project, {})
    assert loaded.config == Config()
    assert len(loaded.refused) == 1
    assert key in loaded.refused[0]
    assert str(project) in loaded.refused[0]


def test_a_project_may_tighten(tmp_path: Path) -> None:
    user = file(tmp_path, '[permissions]\nmode = "auto"\ndeny = ["bash(sudo:*)"]\n[limits]\nturns = 50\n')
    project = file(
        tmp_path,
        '[permissions]\nmode = "plan"\ndeny = ["bash(rm:*)"]\n[limits]\nturns = 9\n'
        "[compaction]\nthreshold = 20000\n[tools.bash]\ntimeout_s = 5\n",
        "project.toml",
    )
    loaded = load(user, project, {})
    assert loaded.refused == []
    assert loaded.config.permissions.mode == "plan"
    assert sorted(loaded.config.permissions.deny) == ["bash(rm:*)", "bash(sudo:*)"]
    assert loaded.config.limits.turns == 9
    assert loaded.config.compaction.threshold == 20000


def test_seed_profile_gives_way_to_keys_set_by_hand(tmp_path: Path) -> None:
    path = file(tmp_path, '[compaction]\nprofile = "seed"\nmin_chars = 5\n')
    config = load(path, None, {"BAREAGENT_REMINDER_ROUNDS": "2"}).config
    assert config.compaction.micro == "eager"
    assert config.compaction.language == "zh"
    assert config.compaction.protect == []
    assert config.compaction.min_chars == 5
    assert config.reminder.rounds == 2


def test_the_example_file_is_the_settings_and_their_defaults(tmp_path: Path) -> None:
    text = (ROOT / "config.toml.example").read_text(encoding="utf-8")
    assert text == example()
    assert load(file(tmp_path, text), None, {}).config == Config()
    data = tomllib.loads(text)
    for key in keys(Config):
        value = data
        for part in key.name.split("."):
            value = value[part]
        assert value == key.default
        assert key.about


def test_the_reference_page_is_made_from_the_settings() -> None:
    assert (ROOT / "docs" / "config.md").read_text(encoding="utf-8") == reference()
