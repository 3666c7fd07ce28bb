"""Text files as bytes and back: the encoding, its mark, and every line end stay what they were."""

import codecs

import msgspec

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Encoding(msgspec.Struct, frozen=True):
    """How a file's text is written: codec, byte-order mark, and whether bytes were no such text."""

    name: str
    mark: bytes = b""
    is_damaged: bool = False


def encoding_of(start: bytes) -> Encoding:
    """Return the encoding by the byte-order mark, else UTF-8."""
    for mark, name in _MARKS:
        if start.startswith(mark):
            return Encoding(name, mark)
    return Encoding("utf-8")


def decoded(data: bytes) -> tuple[str, Encoding]:
    """Return a file's text, foreign bytes as lone surrogates so that `encoded` gives them back."""
    encoding = encoding_of(data)
    body = data[len(encoding.mark) :]
    try:
        return body.decode(encoding.name), encoding
    except UnicodeDecodeError:
        if encoding.name != "utf-8":
            return body.decode("latin-1"), Encoding("latin-1", encoding.mark, is_damaged=True)
        text = body.decode("utf-8", "surrogateescape")
        return text, Encoding("utf-8", encoding.mark, is_damaged=True)


def encoded(text: str, encoding: Encoding) -> bytes:
    """Return the bytes of a text. Raises: UnicodeEncodeError where the encoding lacks a character."""
    errors = "surrogateescape" if encoding.is_damaged and encoding.name == "utf-8" else "strict"
    return encoding.mark + text.encode(encoding.name, errors)
