"""The canonical form: one spelling for every JSON value that has one."""
import hashlib
import json
import re

from refuse import Refuse

MAX_INTEGER = 2**53 - 1
MAX_DEPTH = 64
SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _no_fraction(text):
    raise Refuse("not-canonical")


def _integer(text):
    n = int(text)
    if abs(n) > MAX_INTEGER or text == "-0":
        raise Refuse("not-canonical")
    return n


def _members(pairs):
    out = dict(pairs)
    if len(out) != len(pairs):
        raise Refuse("not-canonical")
    return out


def _string(s):
    if re.search("[\ud800-\udfff]", s):
        raise Refuse("not-canonical")
    return '"' + "".join(SHORT.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in s) + '"'


def write(v, depth=0):
    if depth > MAX_DEPTH:
        raise Refuse("not-canonical")
    if v is None:
        return "null"
    if v is True:
        return "true"
    if v is False:
        return "false"
    if isinstance(v, int):
        return str(v)
    if isinstance(v, str):
        return _string(v)
    if isinstance(v, list):
        return "[" + ",".join(write(x, depth + 1) for x in v) + "]"
    return "{" + ",".join(_string(k) + ":" + write(v[k], depth + 1) for k in sorted(v)) + "}"


def form(data):
    """Returns the canonical text of JSON octets."""
    try:
        v = json.loads(data.decode("utf-8"), parse_float=_no_fraction, parse_int=_integer,
                       parse_constant=_no_fraction, object_pairs_hook=_members)
    except (ValueError, RecursionError):
        raise Refuse("not-canonical") from None
    return write(v)


def canonical(i):
    data = bytes.fromhex(i["hex"]) if "hex" in i else i["text"].encode("utf-8")
    text = form(data)
    return {"text": text, "sha256": hashlib.sha256(text.encode("utf-8")).hexdigest()}
