"""How a reader judges a conformance report, from the report alone."""
import hashlib
import json

import curve
import ledger
from canonical import write
from refuse import Refuse


def judge(i):
    """Returns what the reader makes of it, and the code of the reason."""
    e = i["event"]
    tags = [t for t in e["tags"]]
    one = {t[0]: t[1:] for t in tags}
    if i["now"] >= int(one["expiration"][0]):
        return "not-judged", "report-expired"
    try:
        opened, receipts = examine(e, tags, one)
    except Refuse as r:
        return "unsupported", r.code
    try:
        follows(tags, one, opened, receipts)
    except Refuse as r:
        return "refuted", r.code
    return "supported", ""


def examine(e, tags, one):
    carried = json.loads(e["content"])["evidence"]
    subject = bytes.fromhex(one["d"][0])
    opened, receipts = None, []
    for _, kind, digest in [t for t in tags if t[0] == "evidence"]:
        if digest not in carried:
            raise Refuse("evidence-missing")
        text = write(carried[digest])
        if hashlib.sha256(text.encode()).hexdigest() != digest:
            raise Refuse("evidence-hash")
        if kind == "receipt":
            link = ledger.read_receipt(carried[digest])
            if not curve.verify(subject, link, bytes.fromhex(carried[digest]["sig"])):
                raise Refuse("evidence-unsigned")
            receipts.append(carried[digest])
        elif kind == "grant":
            grant = carried[digest]["event"]
            holds = ledger.event_id(grant) == grant["id"] and curve.verify(
                bytes.fromhex(grant["pubkey"]), bytes.fromhex(grant["id"]), bytes.fromhex(grant["sig"]))
            if not holds or grant["id"] != one["grant"][0] or grant["pubkey"] != e["pubkey"]:
                raise Refuse("evidence-foreign")
            if ledger.commit(carried[digest]["opening"])["commit"] != {t[0]: t[1] for t in grant["tags"]}["commit"]:
                raise Refuse("bad-commitment")
            opened = ledger.read_grant(carried[digest]["opening"]["tags"])
    if opened is None:
        raise Refuse("evidence-missing")
    if not receipts:
        raise Refuse("evidence-unsigned")
    return opened, receipts


def follows(tags, one, opened, receipts):
    limits = opened[1]
    observed = [(t[1], int(t[2]), int(t[3])) for t in tags if t[0] == "observed"]
    claimed = {t[1]: int(t[2]) for t in tags if t[0] == "claimed"}
    if any(limits[n] != allowed for n, _, allowed in observed if n != "dup_ratio"):
        raise Refuse("grant-mismatch")
    fitting = [r for r in receipts if all(ledger.round(r["counters"][ledger.COUNTER[n]]) == ledger.round(c) for n, c in claimed.items())]
    if not fitting:
        raise Refuse("claim-mismatch")
    outcome, reached = int(one["outcome"][0][1]), False
    for name, published, allowed in observed:
        claim = fitting[0]["counters"][ledger.COUNTER[name]]
        # A published count stands for every count that rounds to it: all of them are tried.
        unit = 10 ** max(0, len(str(published)) - 1)
        possible = {ledger.price(allowed, m, claim)[0] for m in range(max(0, published - unit), published + unit + 1) if ledger.round(m) == published}
        if min(possible) > outcome:
            raise Refuse("does-not-follow")
        reached = reached or outcome in possible
    if not reached:
        raise Refuse("does-not-follow")
