"""How a reader judges a conformance report, from the report alone."""
import hashlib
import json
import os

import curve
import ledger
from canonical import write
from refuse import Refuse


with open(os.path.join(ledger.SPEC, "kinds.json"), encoding="utf-8") as f:
    KINDS = {k["name"]: k["kind"] for k in json.load(f)["kinds"]}
# Kinds of other specifications that a node writes about itself, for everybody.
RECORDS = set(KINDS.values()) | {5, 10002, 10050, 30166, 30385}


def judge(i):
    """Returns what the reader makes of it, and the code of the reason."""
    e = i["event"]
    tags = [t for t in e["tags"]]
    one = {t[0]: t[1:] for t in tags}
    if i["now"] >= int(one["expiration"][0]):
        return "not-judged", "report-expired"
    try:
        shown = Exhibit(e, tags, one)
    except Refuse as r:
        return "unsupported", r.code
    try:
        follows(tags, one, shown)
    except Refuse as r:
        return "refuted", r.code
    return "supported", ""


def signed(e):
    return ledger.event_id(e) == e["id"] and curve.verify(bytes.fromhex(e["pubkey"]), bytes.fromhex(e["id"]), bytes.fromhex(e["sig"]))


class Exhibit:
    """The evidence of a report, every piece verified."""

    def __init__(self, e, tags, one):
        self.reporter, self.subject, self.grant = e["pubkey"], one["d"][0], one["grant"][0]
        self.first, self.last = int(one["windows"][0]), int(one["windows"][1])
        self.opened = None
        self.receipts, self.envelopes, self.events, self.witnesses = [], [], [], []
        carried = json.loads(e["content"])["evidence"]
        for _, kind, digest in [t for t in tags if t[0] == "evidence"]:
            if digest not in carried:
                raise Refuse("evidence-missing")
            getattr(self, "admit_" + kind)(carried[digest], digest)
        if self.opened is None:
            raise Refuse("evidence-missing")
        if not self.receipts and not self.envelopes and not self.events:
            raise Refuse("evidence-unsigned")
        if any(not self.asserts(w) for w in self.witnesses):
            raise Refuse("evidence-unsigned")

    @staticmethod
    def whole(artefact, digest):
        if hashlib.sha256(write(artefact).encode()).hexdigest() != digest:
            raise Refuse("evidence-hash")

    def admit_receipt(self, r, digest):
        self.whole(r, digest)
        link = ledger.read_receipt(r)
        if not curve.verify(bytes.fromhex(self.subject), link, bytes.fromhex(r["sig"])):
            raise Refuse("evidence-unsigned")
        if r["grant"] != self.grant or not self.first <= r["window"] <= self.last:
            raise Refuse("evidence-foreign")
        self.receipts.append((r, link))

    def admit_envelope(self, w, digest):
        """The subject signed one hop, and every hop before it holds. What follows proves nothing about it."""
        self.whole(w, digest)
        me, before = "did:nostr:" + self.subject, ""
        if [h["node"] for h in w["path"]].count(me) != 1:
            raise Refuse("evidence-unsigned")
        for place, h in enumerate(w["path"]):
            message = ledger.hop_message(w["event"]["id"], before, h["at"])
            if not curve.verify(ledger.did(h["node"]), message, bytes.fromhex(h["sig"])):
                raise Refuse("evidence-unsigned")
            if h["node"] == me:
                self.envelopes.append((w["event"], place, h["at"], message))
                return
            before = h["node"]

    def admit_event(self, e, digest):
        if e["id"] != digest:
            raise Refuse("evidence-hash")
        if not signed(e):
            raise Refuse("evidence-unsigned")
        (self.events if e["pubkey"] == self.subject else self.witnesses).append(e)

    def admit_grant(self, g, digest):
        self.whole(g, digest)
        grant = g["event"]
        if not signed(grant) or grant["id"] != self.grant or grant["pubkey"] != self.reporter:
            raise Refuse("evidence-foreign")
        tags = {t[0]: t[1] for t in grant["tags"]}
        if ledger.commit(g["opening"])["commit"] != tags["commit"]:
            raise Refuse("bad-commitment")
        one, self.limits, _ = ledger.read_grant(g["opening"]["tags"])
        if one["subject"][1] != self.subject:
            raise Refuse("evidence-foreign")
        self.opened, self.window = one, int(tags["window"])
        self.push = [json.loads(t[2]) for t in g["opening"]["tags"] if t[0] == "scope" and t[1] == "push"]

    def asserts(self, w):
        """Does a claim of the subject's say that it holds this event?"""
        for e in self.events:
            tags = {t[0]: t[1:] for t in e["tags"]}
            if e["kind"] != KINDS["coverage"] or tags["completeness"][0] != "asserted":
                continue
            since, until, measured = int(tags.get("since", ["0"])[0]), int(tags.get("until", ["0"])[0]), int(tags["fingerprint"][1])
            if ledger.matches(json.loads(tags["filter"][0]), w) and since <= w["created_at"] <= min(until or measured, measured):
                return True
        return False

    def was_there(self):
        skew = ledger.C["window"]["skew_seconds"]
        return any(self.first * self.window - skew <= at < (self.last + 1) * self.window + skew for _, _, at, _ in self.envelopes)

    def outside(self, e):
        return not any(ledger.matches(f, e) for f in self.push)

    def structural(self):
        """The severities that the artefacts show by themselves."""
        price = ledger.STRUCTURAL
        for k, (a, link_a) in enumerate(self.receipts):
            for b, link_b in self.receipts[k + 1:]:
                if corrupt(a, link_a, b, link_b) or corrupt(b, link_b, a, link_a):
                    yield price["corrupt-chain"]
        if len({message for _, place, _, message in self.envelopes if place >= ledger.C["forwarding"]["max_hops"]}) > 1:
            yield price["hop-limit"]
        if any(e["kind"] in ledger.C["boundary"]["never_kinds"] or self.outside(e) for e, *_ in self.envelopes):
            yield price["outside-scope"]
        if any(e["kind"] not in RECORDS and self.outside(e) for e in self.events):
            yield price["outside-scope"]
        if self.witnesses:  # each lies in a shard that the subject asserts
            yield price["self-misreport"]


def corrupt(a, link_a, b, link_b):
    """Can two receipts that one key signed not stand in one chain?"""
    if a["window"] != b["window"] or a["grant"] != b["grant"]:
        return False
    if a["seq"] == b["seq"]:
        return link_a != link_b
    if a["seq"] < b["seq"] and any(b["counters"][k] < a["counters"][k] for k in a["counters"]):
        return True
    return b["seq"] == a["seq"] + 1 and b["prev"] != link_a.hex()


def follows(tags, one, shown):
    observed = [(t[1], int(t[2]), int(t[3])) for t in tags if t[0] == "observed"]
    claimed = {t[1]: int(t[2]) for t in tags if t[0] == "claimed"}
    outcome, reached = int(one["outcome"][0][1]), False
    if any(shown.limits[n] != allowed for n, _, allowed in observed if n != "dup_ratio"):
        raise Refuse("grant-mismatch")
    if outcome in shown.structural():
        return
    if not observed:
        raise Refuse("does-not-follow")
    counters = claim_of(claimed, shown)
    for name, published, allowed in observed:
        claim = counters.get(ledger.COUNTER[name], 0)
        # A published count stands for every count that rounds to it: all of them are tried.
        unit = 10 ** max(0, len(str(published)) - 1)
        possible = {ledger.price(allowed, m, claim)[0] for m in range(max(0, published - unit), published + unit + 1) if ledger.round(m) == published}
        if min(possible) > outcome:
            raise Refuse("does-not-follow")
        reached = reached or outcome in possible
    if not reached:
        raise Refuse("does-not-follow")


def claim_of(claimed, shown):
    """The counters of the receipt that the claimed lines speak of; none for a report of silence."""
    if not shown.receipts:
        if claimed:
            raise Refuse("claim-mismatch")
        if not shown.was_there():
            raise Refuse("does-not-follow")
        return {}
    for r, _ in shown.receipts:
        if all(ledger.round(r["counters"][ledger.COUNTER[n]]) == ledger.round(c) for n, c in claimed.items()):
            return r["counters"]
    raise Refuse("claim-mismatch")
