"""Secrets are masked before anything reaches the disk; a table in memory gives the originals back.

Recognised by shape are the keys of known services, private keys, JSON web tokens, passwords in URLs,
bearer tokens, and assignments to names that say what they hold. Known secrets are found in any place.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

MASK = re.compile(r"\[secret: [^\[\]\n]{1,80}\]")
"""What stands for a secret: `[secret: kind …last4]`."""

_NAMES = (
    r"(?:API_?KEY|ACCESS_?KEY(?:_ID)?|SECRET(?:_?KEY|_ACCESS_KEY)?|PRIVATE_?KEY|ENCRYPTION_KEY|SIGNING_KEY"
    r"|MASTER_KEY|ACCOUNT_KEY|AUTH_KEY|TOKEN|PASSWORD|PASSWD|PASSPHRASE|PWD|CREDENTIALS?)"
)
# The lookbehinds let each run of name characters be entered once only, so that time stays linear.
_ASSIGNED = rf"(?<![A-Za-z0-9_])[A-Z][A-Z0-9_]{{0,80}}?(?<![A-Z0-9]){_NAMES}"
_BARE_NAME = rf"(?<![A-Za-z0-9_]){_NAMES}"


class _Shape(NamedTuple):
    """A kind of secret: `hints` are texts one of which stands in every match; group 1 is the secret."""

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(kind: str, hints: str, pattern: str) -> _Shape:
    return _Shape(kind, tuple(hints.split()), re.compile(pattern))


def _token(kind: str, hints: str, pattern: str) -> _Shape:
    """A key that begins in a way no other text does."""
    return _shape(kind, hints, rf"({pattern})(?![A-Za-z0-9])")


def _word(kind: str, hints: str, pattern: str) -> _Shape:
    """A key whose beginning may be the end of an ordinary word: it must stand by itself."""
    return _shape(kind, hints, rf"(?<![A-Za-z0-9_-])({pattern})(?![A-Za-z0-9])")


_SHAPES = (
    _token("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{16,512}"),
    _word("api-key", "sk-", r"sk-[A-Za-z0-9_-]{20,512}"),
    _token("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    _token("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,255}"),
    _token("gitlab-token", "glpat-", r"glpat-[A-Za-z0-9_-]{20,255}(?:\.[A-Za-z0-9]{2,32}){0,3}"),
    _word("aws-key", "AKIA ASIA", r"(?:AKIA|ASIA)[A-Z0-9]{16}"),
    _token("google-key", "AIza", r"AIza[A-Za-z0-9_-]{35}"),
    _word("google-token", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,512}"),
    _token("slack-token", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,255}"),
    _token("slack-token", "xapp-", r"xapp-[A-Za-z0-9-]{10,255}"),
    _word("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}"),
    _token("webhook-secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{16,255}"),
    _word("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,255}"),
    _word("npm-token", "npm_", r"npm_[A-Za-z0-9]{36,255}"),
    _word("pypi-token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,512}"),
    _word("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{40,255}"),
    _word("xai-key", "xai-", r"xai-[A-Za-z0-9]{40,255}"),
    _word("sendgrid-key", "SG.", r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,128}"),
    _token("digitalocean-token", "dop_v1_ doo_v1_", r"do[op]_v1_[a-f0-9]{64}"),
    _token("age-key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{40,80}"),
    _word("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{8,4096}\.eyJ[A-Za-z0-9_-]{4,8192}\.[A-Za-z0-9_-]{8,4096}"),
    _shape(
        "private-key",
        "PRIVATE",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:\\r|\\n|\s)*((?:[A-Za-z-]{1,30}: [^\n]{0,200}\n\s*){0,8}"
        r"(?:[A-Za-z0-9+/=]|\s|\\[rn]){40,}(?<!\s)(?<!\\[rn]))",
    ),
    _shape("url-password", "://", r"://[^\s:/@\"'<>]{0,256}:([^\s/@\"'<>\[\]]{1,512})@"),
    _shape("bearer-token", "earer BEARER", r"\b(?:[Bb]earer|BEARER)\s{1,4}([A-Za-z0-9._~+/=-]{16,4096})"),
    _shape(
        "password",
        "KEY TOKEN SECRET PASS PWD CREDENTIAL",
        rf"(?:{_ASSIGNED}|{_BARE_NAME})[\"']?[ \t]{{0,8}}[:=][ \t]{{0,8}}"
        r"(?:\"([^\"\n$<\[{(]{4,4096})\"|'([^'\n$<\[{(]{4,4096})'|([^\s\"'$<\[{(;,&|`][^\s\"';&|`]{5,4095}))",
    ),
)
_ALL_HINTS = {hint.encode() for shape in _SHAPES for hint in shape.hints}
_HINTS = (b"[secret: ", *(hint for hint in _ALL_HINTS if not any(o in hint for o in _ALL_HINTS - {hint})))
_LEAST_OWN_CHARS = 6
_LEAST_KNOWN_CHARS = 12
_TAIL_FROM_CHARS = 20

# Keys whose values are opaque: the server wants them back byte for byte, or they hold no text.
_OPAQUE = frozenset({"signature", "id", "tool_use_id", "type", "encrypted_content", "encrypted_index"})
_OPAQUE_OF_ENTRY = frozenset({"type", "id", "request_id", "request", "usage", "handles", "calls", "kind"})
_WITH_DATA = frozenset({"base64", "redacted_thinking"})


class Redactor:
    """Masks secrets; remembers, for this process only, what each mask stands for."""

    def __init__(self, *, is_on: bool = True) -> None:
        """Know no secret yet; where it is off, nothing is masked."""
        self.is_on = is_on
        self.originals: dict[str, str] = {}
        self._masks: dict[str, str] = {}
        self._reserved: set[str] = set()
        self._known: list[tuple[str, bytes]] = []
        self._n_masked = 0

    def register(self, secret: str, kind: str = "api-key") -> None:
        """Mask a secret wherever it stands, whatever its shape (from six characters on)."""
        if len(secret) >= _LEAST_OWN_CHARS and secret not in self._masks:
            self._mask_of(secret, kind)
            self._know(secret)

    def reserve(self, masks: Iterable[str]) -> None:
        """Never give out these masks: they stand in a log for secrets that are not known any more."""
        self._reserved.update(masks)

    def mask_body(self, body: bytes) -> bytes:
        """Return an entry's JSON with its secrets masked; of a message, with their number in `masked`."""
        if not self.is_on or not self._is_suspect(body):
            return body
        self._n_masked = 0
        data = msgspec.json.decode(body)
        for key in data.keys() - _OPAQUE_OF_ENTRY:
            data[key] = self._masked(data[key])
        if not self._n_masked:
            return body
        if data["type"] == "message":
            data["masked"] = self._n_masked
        return msgspec.json.encode(data)

    def mask(self, text: str) -> str:
        """Return a text with its secrets masked."""
        return self._masked_text(text) if self.is_on else text

    def unmask(self, value: Any) -> Any:
        """Return a JSON value with the originals put back; what holds no mask is the same object."""
        return _unmasked(value, self.originals) if self.originals else value

    def _is_suspect(self, body: bytes) -> bool:
        for hint in _HINTS:  # a loop is twice as fast as any() here, and each append comes this way
            if hint in body:
                return True
        return any(needle in body for _, needle in self._known)

    def _masked(self, value: Any, *, is_raw: bool = False) -> Any:
        """Mask strings and keys; below a call's `input` (raw) nothing is opaque."""
        if isinstance(value, str):
            return self._masked_text(value)
        if isinstance(value, list):
            return [self._masked(item, is_raw=is_raw) for item in value]
        if isinstance(value, dict):
            return {
                self._masked_text(key): item
                if not is_raw and _is_opaque(key, value)
                else self._masked(item, is_raw=is_raw or key == "input")
                for key, item in value.items()
            }
        return value

    def _masked_text(self, text: str) -> str:
        spans = _merged(self._spans(text))
        if not spans:
            return text
        parts = []
        place = 0
        for start, end, kind in spans:
            parts += [text[place:start], self._mask_of(text[start:end], kind)]
            place = end
        self._n_masked += len(spans)
        return "".join([*parts, text[place:]])

    def _spans(self, text: str) -> list[tuple[int, int, str]]:
        spans = [
            (*match.span(match.lastindex or 0), shape.kind)
            for shape in _SHAPES
            if any(hint in text for hint in shape.hints)
            for match in shape.pattern.finditer(text)
        ]
        for secret, _ in self._known:
            spans += [(place, place + len(secret), "secret") for place in _places(secret, text)]
        if "[secret: " in text:
            # What is no mask of ours must not become one: it would be given an original it never had.
            self._reserved.update(set(MASK.findall(text)) - self.originals.keys())
        return spans

    def _mask_of(self, secret: str, kind: str) -> str:
        mask = self._masks.get(secret)
        if mask is None:
            mask = self._masks[secret] = self._fresh_mask(secret, kind)
            self.originals[mask] = secret
            if len(secret) >= _LEAST_KNOWN_CHARS:
                self._know(secret)
        return mask

    def _fresh_mask(self, secret: str, kind: str) -> str:
        last = secret.rstrip()[-4:] if len(secret) >= _TAIL_FROM_CHARS else ""
        tail = f" …{last}" if last and not set(last) & set("[]\n") else ""
        mask, k = f"[secret: {kind}{tail}]", 1
        while mask in self.originals or mask in self._reserved:
            k += 1
            mask = f"[secret: {kind}-{k}{tail}]"
        return mask

    def _know(self, secret: str) -> None:
        needle = msgspec.json.encode(secret)[1:-1]
        if all(secret != known for known, _ in self._known):
            self._known.append((secret, needle))


def _is_opaque(key: str, box: dict[str, Any]) -> bool:
    if "type" not in box:
        return False
    return key in _OPAQUE or (key == "data" and box["type"] in _WITH_DATA)


def _places(secret: str, text: str) -> Iterable[int]:
    place = text.find(secret)
    while place >= 0:
        yield place
        place = text.find(secret, place + len(secret))


def _merged(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Overlapping finds are one secret, of the kind that was found first; so no end of one is left over."""
    merged: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(spans, key=lambda span: span[0]):
        if merged and start < merged[-1][1]:
            first, last, name = merged[-1]
            merged[-1] = (first, max(last, end), name)
        else:
            merged.append((start, end, kind))
    return merged


def _unmasked(value: Any, originals: dict[str, str]) -> Any:
    if isinstance(value, str):
        return (
            MASK.sub(lambda match: originals.get(match[0], match[0]), value)
            if "[secret: " in value
            else value
        )
    if isinstance(value, list):
        items = [_unmasked(item, originals) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if isinstance(value, dict):
        return _unmasked_box(value, originals)
    return value


def _unmasked_box(value: dict[str, Any], originals: dict[str, str]) -> dict[str, Any]:
    box = {_unmasked(key, originals): _unmasked(item, originals) for key, item in value.items()}
    is_same = all(box.get(key, box) is item for key, item in value.items())
    return value if is_same else box
