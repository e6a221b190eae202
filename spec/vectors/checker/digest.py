"""The digest of the vocabulary, from the three files themselves."""
import hashlib
import os

from canonical import form
from refuse import Refuse

SPEC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def digest(i):
    whole = hashlib.sha256()
    for name in ("kinds", "messages", "constants"):
        with open(os.path.join(SPEC, name + ".json"), "rb") as f:
            text = form(f.read()).encode("utf-8")
        if hashlib.sha256(text).hexdigest() != i[name + "_sha256"]:
            raise Refuse(name + " differs")
        whole.update(text)
    return whole.hexdigest()
