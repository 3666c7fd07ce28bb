"""Secrets never reach the disk, and come back byte for byte while the program runs."""

import contextlib
import json
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareagent.entries import Compaction, Epoch, MessageEntry, Name, Todo, TodoItem
from bareagent.fold import MASKED_EPOCH
from bareagent.messages import text_block, text_of, user
from bareagent.session import Session, fold
from bareagent.store.lines import encode_body
from bareagent.store.redact import MASK, Redactor
from tests.fakes import call, result, said
from tests.fakes import results as answered
from tests.play import line, manager, reply

# Put together from pieces, so that no scanner takes this file for a leak.
KEYS = {
    "anthropic-key": "sk-" + "ant-api03-" + "Ab3_" * 20 + "-AA",
    "api-key": "sk-" + "proj-" + "9fKq" * 10,
    "github-token": "gh" + "p_" + "a1B2" * 9,
    "gitlab-token": "glpat" + "-" + "x7Yz" * 5,
    "aws-key": "AKIA" + "IOSFODNN7EXAMPLE",
    "google-key": "AI" + "za" + "Sy1_x" * 7,
    "slack-token": "xox" + "b-123456789012-" + "abcdEFGH" * 2,
    "stripe-key": "sk" + "_live_" + "4eC39HqLyjWD" * 2,
    "huggingface-token": "hf" + "_" + "qWeRtY" * 6,
    "jwt": "ey" + "J" + "hbGciOiJIUzI1NiJ9." + "ey" + "J" + "zdWIiOiIxMjM0In0." + "SflKxwRJSMeKKF2QT4",
    "sendgrid-key": "SG" + "." + "a1b2c3d4e5f6g7h8" + "." + "Z9y8x7w6v5u4t3s2r1q0",
}
BODY = ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 2 + "\n") * 6
PRIVATE_KEY = "-----BEGIN RSA " + "PRIVATE KEY-----\n" + BODY + "-----END RSA " + "PRIVATE KEY-----"


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(
    "frame", ["{}", "key: {}.", '"{}"', "a={};b", "see\n{}\nthere", "({})", "`{}`", "é{}é"]
)
def test_keys_of_known_shapes_are_masked_and_come_back(kind: str, frame: str) -> None:
    redactor = Redactor()
    text = frame.format(KEYS[kind])
    masked = redactor.mask(text)
    assert KEYS[kind] not in masked
    assert masked == frame.format(f"[secret: {kind} …{KEYS[kind][-4:]}]")
    assert redactor.unmask(masked) == text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgres://user:pa55-w0rd@host:5432/db", "pa55-w0rd"),
        ("https://:tok3n@host/", "tok3n"),
        ("Authorization: Bearer abcDEF123456.xyz-7890", "abcDEF123456.xyz-7890"),
        ("export DB_PASSWORD=hunter2-and-more", "hunter2-and-more"),
        ("DATABASE_PASSWORD: 'two words here'", "two words here"),
        ('  "API_KEY": "q1w2e3r4t5"', "q1w2e3r4t5"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfi", "wJalrXUtnFEMI/K7MDENG/bPxRfi"),
        ("MY_SERVICE_TOKEN = abc123def", "abc123def"),
        ("PASSWORD=correct-horse", "correct-horse"),
        ("APIKEY=zxcvbnm12", "zxcvbnm12"),
        (PRIVATE_KEY, BODY.strip()),
        (PRIVATE_KEY.replace("\n", "\\n"), BODY.strip().replace("\n", "\\n")),
        ("-----BEGIN " + "PRIVATE KEY-----\n" + BODY + "(cut", BODY.strip()),
    ],
)
def test_secrets_in_their_places_are_masked_and_what_is_around_stays(text: str, secret: str) -> None:
    redactor = Redactor()
    masked = redactor.mask(text)
    before, _, after = text.partition(secret)
    assert re.fullmatch(re.escape(before) + r"\[secret: [^\]]+\]" + re.escape(after), masked)
    assert redactor.unmask(masked) == text


@pytest.mark.parametrize(
    "text",
    [
        "MAX_TOKENS=4096 and SECRET_TOKENS_PER_TURN=12",
        "password = get_password()",
        "API_KEY=${API_KEY} PASSWORD=$(pass show x) TOKEN=<your token> KEY=[list]",
        'os.environ["API_KEY"] and PRIMARY_KEY=identifier',
        "http://localhost:8080/path?x=1#y",
        "the task-list and risk-free disk-usage",
        "a public key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA",
        "-----BEGIN CERTIFICATE-----\n" + BODY,
        'if "PRIVATE KEY-----" in text: raise ValueError("-----BEGIN PRIVATE KEY-----")',
        "sk-learn, sk-short, ghp_short, hf_hub_download, npm_config_cache",
        "sha256 " + "0123456789abcdef" * 4,
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert Redactor().mask(text) == text


def test_the_last_four_are_shown_from_twenty_characters_on() -> None:
    redactor = Redactor()
    assert redactor.mask("TOKEN=" + "a1" * 9) == "TOKEN=[secret: password]"
    assert redactor.mask("TOKEN=" + "b2" * 10) == "TOKEN=[secret: password …b2b2]"


def test_secrets_that_end_alike_have_masks_of_their_own() -> None:
    redactor = Redactor()
    one, two = "sk-" + "a" * 30 + "last", "sk-" + "b" * 30 + "last"
    text = f"{one} {two} {one} DB_PASSWORD=hunter2 APP_PASSWORD=hunter3"
    masked = redactor.mask(text)
    assert masked == (
        "[secret: api-key …last] [secret: api-key-2 …last] [secret: api-key …last]"
        " DB_PASSWORD=[secret: password] APP_PASSWORD=[secret: password-2]"
    )
    assert redactor.unmask(masked) == text


def test_a_mask_of_ours_stays_and_one_that_is_not_ours_is_never_given_out() -> None:
    redactor = Redactor()
    foreign = "[secret: password] [secret: api-key …9fKq]"
    assert redactor.mask(foreign) == foreign
    masked = redactor.mask(f"{KEYS['api-key']} PASSWORD=hunter22")
    assert masked == "[secret: api-key-2 …9fKq] PASSWORD=[secret: password-2]"
    assert redactor.mask(masked) == masked
    assert redactor.unmask(foreign) == foreign


def test_the_programs_own_key_is_masked_whatever_its_shape() -> None:
    redactor = Redactor()
    redactor.register('örtlich "quoted"\n-7')
    redactor.register("none")
    body = encode_body(MessageEntry(message=user('x örtlich "quoted"\n-7 none y')))
    assert b"[secret: api-key]" in redactor.mask_body(body)
    assert b"none" in redactor.mask_body(body)
    assert "quoted" not in redactor.mask_body(body).decode()


def test_a_secret_seen_once_is_known_anywhere() -> None:
    redactor = Redactor()
    redactor.mask("DB_PASSWORD=correct-horse-battery")
    assert redactor.mask("echo correct-horse-battery") == "echo [secret: password …tery]"


def test_off_means_off() -> None:
    redactor = Redactor(is_on=False)
    redactor.register("my-own-key-123")
    text = KEYS["api-key"] + " my-own-key-123"
    assert redactor.mask(text) == text
    body = encode_body(MessageEntry(message=user(text)))
    assert redactor.mask_body(body) is body


def test_opaque_values_stay_byte_exact_and_a_calls_arguments_do_not() -> None:
    key = KEYS["api-key"]
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": f"the key is {key}", "signature": key},
        {"type": "redacted_thinking", "data": key},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": key}},
        {
            "type": "tool_use",
            "id": key,
            "name": "bash",
            "input": {"type": "base64", "data": key, "id": key, key: 1},
        },
        {"type": "tool_result", "tool_use_id": key, "content": [{"type": "text", "text": key}]},
    ]
    redactor = Redactor()
    body = encode_body(MessageEntry(message={"role": "assistant", "content": blocks}, request_id=key))
    data = msgspec.json.decode(redactor.mask_body(body))
    mask = f"[secret: api-key …{key[-4:]}]"
    thinking, redacted, image, use, answer = data["message"]["content"]
    assert thinking == {"type": "thinking", "thinking": f"the key is {mask}", "signature": key}
    assert (redacted["data"], image["source"]["data"], use["id"]) == (key, key, key)
    assert use["input"] == {"type": "base64", "data": mask, "id": mask, mask: 1}
    assert answer == {"type": "tool_result", "tool_use_id": key, "content": [{"type": "text", "text": mask}]}
    assert data["request_id"] == key
    assert data["masked"] == 5
    assert redactor.unmask(data["message"]["content"]) == blocks


PIECES = st.one_of(
    st.sampled_from([*KEYS.values(), PRIVATE_KEY, "PASSWORD=hunter2222", "a://b:cde@f", "[secret: api-key]"]),
    st.sampled_from(
        ["[secret: password]", "[secret: api-key …9fKq]", "PASSWORD=", '"', "\\", "\n", "Bearer "]
    ),
    st.text(max_size=8),
)
TEXTS = st.lists(PIECES, max_size=6).map(" ".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return [_shape(item) for item in value.values()]
    if isinstance(value, list):
        return [_shape(item) for item in value]
    return type(value)


@settings(max_examples=150, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_masking_keeps_structure_hides_every_key_and_is_undone(values: list[Any]) -> None:
    redactor = Redactor()
    for value in values:
        block = {"type": "tool_use", "id": "t", "name": "x", "input": {"value": value}}
        message = {"role": "assistant", "content": [block]}
        body = encode_body(MessageEntry(message=message))  # type: ignore[arg-type]  # a plain dict
        masked = redactor.mask_body(body)
        assert not [key for key in KEYS.values() if key.encode() in masked]
        data = msgspec.json.decode(masked)["message"]
        assert _shape(data) == _shape(message)
        assert redactor.unmask(data) == redactor.unmask(message)
        assert json.loads(masked)["message"] == data


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS)
def test_masking_twice_is_masking_once(one: str, two: str) -> None:
    redactor = Redactor()
    for text in (one, two, f"{one} {two}"):
        masked = redactor.mask(text)
        assert redactor.mask(masked) == masked
        assert redactor.unmask(masked) == redactor.unmask(text)
        if "[secret: " not in text:
            assert redactor.unmask(masked) == text


def test_values_without_masks_are_the_same_objects() -> None:
    redactor = Redactor()
    message = user("hello")
    assert redactor.unmask(message) is message
    redactor.mask(KEYS["api-key"])
    assert redactor.unmask([message])[0] is message


@pytest.mark.parametrize(
    "text",
    [
        "A" * 10**6,
        "A_" * 500_000,
        "://a:" * 200_000,
        "-----BEGIN " + "PRIVATE KEY-----" * 30_000,
        "-----BEGIN " + "PRIVATE KEY-----\n" + "A: b\n" * 200_000,
        "eyJ" * 300_000,
        "API_KEY='" * 100_000,
        "TOKEN:" * 150_000,
        "[secret: " * 100_000,
        "github_pat_" * 90_000,
        "sk-ant-" * 140_000,
    ],
    ids=lambda text: text[:14],
)
def test_time_is_linear(text: str) -> None:
    start = time.process_time()
    Redactor().mask(text)
    assert time.process_time() - start < 3


def test_a_session_never_writes_a_secret_and_sends_the_original(tmp_path: Path) -> None:
    key, own = KEYS["api-key"], "own key of no shape"
    home = manager(tmp_path, keys=[own])
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        line(session, f"use {key} and {own}")
        reply(session, call("bash", id="t1", command=f"curl -H {key}"))
        session.append(answered(result(f"{own}: 200 OK", id="t1")), "results")
        session.record(Name(name=f"about {key}"))
        session.record(Todo(items=[TodoItem(id="t1", text=own)]))
        session.compact(Compaction(summary=f"we used {key}", generation=0, facts=own))
        session.snapshot("new")
        assert key not in json.dumps(session.messages)
        assert key in text_of(session.unmask(session.messages)[0])
        assert session.unmask(session.original_message(3))["content"][0]["input"] == {
            "command": f"curl -H {key}"
        }
        assert session.view.n_masked == 4
        assert fold(session.entries()) == session.view
    for path in home.folder.rglob("*"):
        if path.is_file():
            assert key not in path.read_text()
            assert own not in path.read_text()


def test_after_a_resume_the_masks_go_out_and_masked_thinking_does_not(tmp_path: Path) -> None:
    home = manager(tmp_path)
    key = KEYS["api-key"]
    thinking = {"type": "thinking", "thinking": f"a key: {key}", "signature": "c2ln"}
    other = {"type": "thinking", "thinking": "no key", "signature": "b3Ro"}
    with contextlib.closing(Session.new(home, tmp_path)) as session:
        line(session, f"use {key}")
        made = said(thinking, "yes")
        session.append(made.message, "reply", made)
        line(session, "more")
        made = said(other, "yes")
        session.append(made.message, "reply", made)
        assert session.unmask(session.messages)[1]["content"][0] == thinking
    with contextlib.closing(Session.open(home, session.id)) as session:
        masks = MASK.findall(json.dumps(session.messages, ensure_ascii=False))
        assert len(masks) == 1
        assert session.messages[1] == said("yes").message
        assert session.messages[3] == said(other, "yes").message
        assert [e.reason for e in session.entries() if isinstance(e, Epoch)] == [MASKED_EPOCH]
        line(session, f"again {key}")
        assert session.unmask(session.messages)[0] == session.messages[0]
        assert key in text_of(session.unmask(session.messages)[-1])
        assert text_of(session.messages[-1]) != f"again {masks[0]}"
        assert fold(session.entries()) == session.view
    for n_epochs in (2, 2):
        with contextlib.closing(Session.open(home, session.id)) as session:
            assert sum(isinstance(e, Epoch) for e in session.entries()) == n_epochs


def test_a_fork_in_the_same_process_still_knows_what_its_masks_stand_for(tmp_path: Path) -> None:
    home = manager(tmp_path)
    secret = KEYS["github-token"]
    with contextlib.closing(Session.new(home, home.root)) as session:
        line(session, f"use {secret}")
        reply(session, text_block("I will."))
        copy = home.fork(home.find(session.id))
        with contextlib.closing(Session.open(home, copy.id, redactor=session.redactor)) as fork:
            assert secret not in (copy.folder / "log.jsonl").read_text()
            assert secret in text_of(fork.unmask(fork.messages)[0])
            assert not any(isinstance(entry, Epoch) for entry in fork.entries())
        with contextlib.closing(Session.open(home, copy.id)) as resumed:
            assert secret not in text_of(resumed.unmask(resumed.messages)[0])
            assert any(isinstance(entry, Epoch) for entry in resumed.entries())
