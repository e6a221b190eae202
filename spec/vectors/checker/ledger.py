"""The ledger's arithmetic, written from the protocol's text and constants.json."""
import hashlib
import json
import os
import re
from fractions import Fraction

import curve
from blinding import hkdf
from canonical import write
from nip44 import decrypt
from refuse import Refuse

SPEC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
with open(os.path.join(SPEC, "constants.json"), encoding="utf-8") as f:
    C = json.load(f)


def frac(r):
    return Fraction(r["num"], r["den"])


LIMITS = {x["name"]: x for x in C["limits"]}
COUNTER = {name: C["counter_of"].get(name, name) for name in LIMITS}
STEPS = [(frac(s["ratio"]), int(s["severity"][1])) for s in C["schedule"]]
REMEDY = {int(r["severity"][1]): r for r in C["remedies"]}
STRUCTURAL = {"outside-scope": 3, "malformed-flood": 3, "hop-limit": 3, "expired-backfill": 1, "wrap-flood": 1, "self-misreport": 2,
              "forged-signature": 4, "corrupt-chain": 4, "impersonation": 4, "shard-poisoning": 4, "grant-evasion": 4}


def ceiling(name, t):
    return LIMITS[name]["ceiling"].get(t, 0)


def opening(name, t):
    top = ceiling(name, t)
    return {"ceiling": top, "quarter": int(top * frac(C["opening_quarter"])), "zero": 0}[LIMITS[name]["opens"]]


def s(n):
    return f"S{n}"


def by_ratio(measured, limit):
    if limit == 0:
        return 3 if measured else 0
    return max([sev for ratio, sev in STEPS if Fraction(measured, limit) >= ratio], default=0)


def divergence_floor(limit):
    return max(C["divergence"]["floor_min_units"], int(limit * frac(C["divergence"]["floor"])))


def price(limit, measured, claimed):
    lies = Fraction(abs(measured - claimed), max(measured, divergence_floor(limit))) > frac(C["divergence"]["tolerance"])
    sev = by_ratio(measured, limit)
    return (max(sev, int(C["divergence"]["severity"][1])) if lies else sev), lies


def classify(i):
    sev, lies = price(i["limit"], i["measured"], i["claimed"])
    return {"severity": s(sev), "diverges": lies, "floor": divergence_floor(i["limit"])}


def price_duplicates(events_limit, events, dups):
    if not events or events < divergence_floor(events_limit):
        return 0
    ratio = Fraction(dups, events) / frac(C["dup_ratio"]["ceiling"])
    return max([sev for step, sev in STEPS if ratio >= step], default=0)


def duplicates(i):
    return s(price_duplicates(i["events_limit"], i["events"], i["duplicates"]))


def assess(limits, measured, claimed):
    out = {"severity": "S0", "lines": None, "evaluated": False, "silent": False, "unmetered": measured is None}
    if measured is None:
        return out
    if not any(measured.values()) and not any((claimed or {}).values()):
        return out  # dormant: not a finding, and not a clean window either
    out.update(evaluated=True, silent=claimed is None)
    claimed = claimed or {}
    lines, worst = [], int(C["silence"]["active"][1]) if out["silent"] else 0
    for name in LIMITS:
        m, c = measured.get(COUNTER[name], 0), claimed.get(COUNTER[name], 0)
        sev, lies = price(limits[name], m, c)
        lines.append({"limit": name, "allowed": limits[name], "measured": m, "claimed": c, "severity": s(sev), "diverges": lies})
        worst = max(worst, sev)
    events, dups = measured.get("events_in", 0), measured.get("dups_sent", 0)
    sev = price_duplicates(limits["events_in"], events, dups)
    lines.append({"limit": "dup_ratio", "allowed": events, "measured": dups, "claimed": 0, "severity": s(sev), "diverges": False})
    out.update(lines=lines, severity=s(max(worst, sev)))
    return out


def evaluate(i):
    out = assess(i["limits"], i["measured"], i["claimed"])
    reached = [(Fraction(x["measured"], x["allowed"]), x["limit"]) for x in (out["lines"] or [])
               if x["limit"] != "dup_ratio" and x["allowed"] and x["measured"] >= x["allowed"]]
    return {"evaluation": out, "binding": max(reached)[1] if reached else ""}


def grown(name, limit, used, t, unmetered):
    top, start, g = ceiling(name, t), opening(name, t), C["growth"]
    least = int(top * frac(g["step_min"]))
    if limit == 0 and LIMITS[name]["opens"] == "zero":
        return 0  # an operator raises it
    if unmetered:
        return limit + least
    if used == 0:
        return max(start, int(limit * frac(g["decay"]))) if limit > start else limit
    strain = min(Fraction(1), Fraction(used, limit)) if limit else Fraction(1)
    return limit + max(least, int(top * frac(g["step"]) * strain))


def closed(st, v, now, structural=()):
    new, move = dict(st, limits=dict(st["limits"])), {"cause": "", "delete": False}
    sev = max([int(v["severity"][1])] + [STRUCTURAL[x] for x in structural])
    t = st["tier"]
    if sev:
        r = REMEDY[sev]
        for n in LIMITS:
            x = int(st["limits"][n] * frac(r["factor"]))
            if r["floor_tier"]:
                x = max(x, ceiling(n, r["floor_tier"]))
            new["limits"][n] = min(x, st["limits"][n])  # a remedy never raises
        new.update(tier=r["tier"] or t, clean_windows=0, idle_windows=0, overruns=st["overruns"] + (sev == 1))
        if r["zero_seconds"]:
            new["zero_until"] = now + r["zero_seconds"]
        move.update(cause="remedy", delete=sev == 4)
    elif v["evaluated"] or v["unmetered"]:
        used = {x["limit"]: x["measured"] for x in v["lines"] or []}
        new["limits"] = {n: grown(n, st["limits"][n], used.get(n, 0), t, v["unmetered"]) for n in LIMITS}
        if v["evaluated"]:
            new.update(clean_windows=st["clean_windows"] + 1, idle_windows=0)
    else:
        new["idle_windows"] += 1
        if new["idle_windows"] % C["growth"]["decay_idle_windows"] == 0:
            for n in LIMITS:
                x, start = st["limits"][n], opening(n, t)
                new["limits"][n] = max(start, int(x * frac(C["growth"]["decay"]))) if x > start else x
    new["limits"] = {n: min(x, ceiling(n, new["tier"])) for n, x in new["limits"].items()}
    moved = [new["limits"][n] - st["limits"][n] for n in LIMITS]
    if not sev and min(moved) < 0 and max(moved) <= 0:  # a window that did both grew
        move["cause"] = "disuse"
    move.update(severity=s(sev), amended=new["limits"] != st["limits"] or new["tier"] != t)
    return new, move


def close(i):
    st = i["standing"]
    new, move = closed(st, assess(st["limits"], i["measured"], i["claimed"]), i["now"], i["structural"] or ())
    return {"standing": new, "move": move}


def tier(t):
    return {"ceiling": {n: ceiling(n, t) for n in LIMITS}, "opening": {n: opening(n, t) for n in LIMITS},
            "seeded": {n: 0 if LIMITS[n]["opens"] == "zero" else ceiling(n, t) for n in LIMITS}}


def run(i):
    st = {"tier": i["tier"], "limits": tier(i["tier"])["opening"], "clean_windows": 0, "idle_windows": 0, "overruns": 0, "zero_until": 0}
    out = []
    for _ in range(i["windows"]):
        used = {COUNTER[n]: x for n, x in st["limits"].items()} if i.get("full") else {"events_in": i["events"]}
        st, _move = closed(st, assess(st["limits"], used, used), 0)
        out.append(st["limits"]["events_in"])
    return out


def resume(i):
    st = i["standing"]
    if not st["zero_until"] or i["now"] < st["zero_until"]:
        return st
    return dict(st, limits=tier(st["tier"])["opening"], zero_until=0)


def publish(i):
    n = int(i["severity"][1])
    r = REMEDY[n]
    if n == 1 and i["overruns"] < r["publish_from_occurrence"]:
        return {"at": 0, "never": True, "notice": not i["noticed"]}
    wait = r["notice_windows"] * i["window"]
    if not wait:
        return {"at": i["now"], "never": False, "notice": False}
    return {"at": (i["noticed"] or i["now"]) + wait, "never": False, "notice": not i["noticed"] and i["reachable"]}


def round(n):  # noqa: A001, the vectors' name
    unit = 10 ** max(0, len(str(n)) - C["privacy"]["published_significant_figures"])
    return (n + unit // 2) // unit * unit if unit > 1 else n


def view(i):
    weight_of = {t["name"]: frac(t["weight"]) for t in C["tiers"]}
    weights = []
    for v in i["voices"]:
        age = min(Fraction(1), Fraction(v["clean_windows"], C["trust"]["age_windows"]))
        false = Fraction(v["false"], v["evaluated"]) if v["evaluated"] else 0
        weights.append(weight_of.get(v["tier"], Fraction(0)) * age * (1 - false))
    seen = int(i["own"][1])
    for sev in range(1, 5):
        heard = {v["reporter"]: w for v, w in zip(i["voices"], weights) if v["topic"] == i["topic"] and int(v["severity"][1]) >= sev}
        if sum(heard.values()) >= frac(C["trust"]["theta"]):
            seen = max(seen, sev)
    return {"view": s(seen), "weights": [str(w) for w in weights]}


def window(i):
    at = i["created"] if abs(i["created"] - i["arrived"]) <= C["window"]["skew_seconds"] else i["arrived"]
    n, epoch = i["length"], at // i["length"]
    return {"epoch": epoch, "start": epoch * n, "end": (epoch + 1) * n, "grace_end": (epoch + 1) * n + int(n * frac(C["window"]["grace"]))}


def bucket(i):
    limits = {n: i["limits"].get(n, 0) for n in LIMITS}
    held, spent, results = {}, dict.fromkeys(C["counters"], 0), []

    def left():
        return {n: limits[n] - spent[COUNTER[n]] - sum(h.get(COUNTER[n], 0) for h in held.values()) for n in LIMITS}

    for k, step in enumerate(i["steps"]):
        if "settle" in step:
            if step["settle"] not in held:
                results.append("error")
                continue
            del held[step["settle"]]
            for name, x in step.get("actual", {}).items():
                spent[name] += x
            results.append("settled")
        elif all(left()[n] >= step["reserve"].get(COUNTER[n], 0) for n in LIMITS):
            held[k] = step["reserve"]
            results.append("reserved")
        else:
            results.append("refused")
    return {"results": results, "left": left(), "spent": spent}


def blind(i):
    x = curve.shared_x(bytes.fromhex(i["secret"]), did(i["other"]))
    derive = {k: hkdf(x, C["blinding"][k]["salt"].encode(), C["blinding"][k]["info"].encode(), C["blinding"]["length"]).hex() for k in ("grant", "job")}
    return {"shared": x.hex(), **derive}


def commit(i):
    blinding = next(t[1] for t in i["tags"] if t[0] == "blinding")
    text = write(dict(i, tags=[t for t in i["tags"] if t[0] != "blinding"]))
    return {"canonical": text, "commit": hashlib.sha256(bytes.fromhex(blinding) + text.encode()).hexdigest()}


def did(text):
    if not re.fullmatch("did:nostr:[0-9a-f]{64}", text):
        raise Refuse("bad-did")
    return bytes.fromhex(text[10:])


def hop_message(event, before, at):
    return hashlib.sha256("|".join([C["forwarding"]["hop_label"], event, before, str(at)]).encode()).digest()


def hop(i, given):
    """A signature has many valid forms: the one given is checked and handed back."""
    message = hop_message(i["event"], i["before"], i["at"])
    holds = curve.verify(curve.public(bytes.fromhex(i["secret"])), message, bytes.fromhex(given["signature"]))
    return {"message": message.hex(), "signature": given["signature"] if holds else "does not verify"}


hop.wants_output = True

RECEIPT = {"grant", "window", "seq", "prev", "counters", "forwarded_for", "at", "sig"}


def count(n):
    if isinstance(n, bool) or not isinstance(n, int):
        raise Refuse("bad-json")
    if not 0 <= n <= 2**53 - 1:
        raise Refuse("bad-field")


def read_receipt(r):
    if not set(r) <= RECEIPT or not set(r["counters"]) <= set(C["counters"]):
        raise Refuse("bad-json")
    for n in [r["window"], r["seq"], r["at"], *r["counters"].values()]:
        count(n)
    if set(r["counters"]) != set(C["counters"]):
        raise Refuse("bad-field")
    for k, digits in (("grant", 64), ("prev", 64), ("sig", 128)):
        if not re.fullmatch("[0-9a-f]{%d}" % digits, r[k]):
            raise Refuse("bad-field")
    for d in r["forwarded_for"]:
        did(d)
    return hashlib.sha256(write({k: v for k, v in r.items() if k != "sig"}).encode()).digest()


def chain(i):
    last, head = None, bytes(32)
    for r in i["receipts"] or []:
        link = read_receipt(r)
        if r["grant"] != i["grant"]:
            raise Refuse("receipt-grant")
        if r["window"] != i["window"]["epoch"]:
            raise Refuse("receipt-window")
        if r["at"] > i["now"] + C["window"]["skew_seconds"]:
            raise Refuse("receipt-future")
        if not curve.verify(did(i["subject"]), link, bytes.fromhex(r["sig"])):
            raise Refuse("receipt-signature")
        due = last["seq"] + 1 if last else C["receipt"]["first_seq"]
        if r["seq"] < due:  # of all before the head only the head is kept
            raise Refuse("receipt-fork" if r["seq"] == due - 1 and link != head else "receipt-stale")
        if r["seq"] > due:
            raise Refuse("receipt-gap")
        if bytes.fromhex(r["prev"]) != head:
            raise Refuse("receipt-fork")
        if last and any(r["counters"][k] < last["counters"][k] for k in C["counters"]):
            raise Refuse("receipt-regress")
        last, head = r, link
    return {"head": head.hex(), "claim": last["counters"] if last else None}


def event_id(e):
    text = json.dumps([0, e["pubkey"], e["created_at"], e["kind"], e["tags"], e["content"]], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def matches(filt, e):
    if "kinds" in filt and e["kind"] not in filt["kinds"]:
        return False
    return all(any(t[0] == k[1:] and len(t) > 1 and t[1] in v for t in e["tags"]) for k, v in filt.items() if k.startswith("#"))


def envelope(i):
    w, e = i["envelope"], i["envelope"]["event"]
    if not w["path"]:
        raise Refuse("empty-path")
    if len(w["path"]) > C["forwarding"]["max_hops"]:
        raise Refuse("hop-limit")
    if event_id(e) != e["id"] or not curve.verify(bytes.fromhex(e["pubkey"]), bytes.fromhex(e["id"]), bytes.fromhex(e["sig"])):
        raise Refuse("event-signature")
    before, passed = "", [i["self"]]
    for h in w["path"]:
        if h["node"] in passed:
            raise Refuse("hop-loop")
        if not curve.verify(did(h["node"]), hop_message(e["id"], before, h["at"]), bytes.fromhex(h["sig"])):
            raise Refuse("hop-signature")
        before = h["node"]
        passed.append(before)
    tags = {t[0]: t for t in e["tags"]}
    if before != i["peer"]:
        raise Refuse("last-hop")
    if w["grant"] != i["grant"]:
        raise Refuse("wrong-grant")
    if w["window"] != i["window"]:
        raise Refuse("wrong-window")
    if e["kind"] in C["boundary"]["never_kinds"]:
        raise Refuse("never-crosses")
    if "-" in tags:
        raise Refuse("protected-event")
    if "expiration" in tags and int(tags["expiration"][1]) <= i["now"]:
        raise Refuse("expired-event")
    if not matches(json.loads(i["push_scope"]), e):
        raise Refuse("out-of-scope")
    return {"hops": len(w["path"]), "origin": w["path"][0]["node"]}


def decimal(r):
    """1.1 for 11/10, 2.0 for 2: the one way a ratio is written in a grant."""
    whole, rest = divmod(frac(r), 1)
    digits = ""
    while rest or not digits:
        d, rest = divmod(rest * 10, 1)
        digits += str(d)
    return f"{whole}.{digits}"


def is_filter(text):
    try:
        v = json.loads(text)
    except ValueError:
        return False
    return isinstance(v, dict) and all(k in ("ids", "authors", "kinds", "since", "until", "limit", "search") or re.fullmatch("#[A-Za-z]", k) for k in v)


def read_limit(limits, t):
    if t[1] == "dup_ratio":
        if t[2] != decimal(C["dup_ratio"]["ceiling"]):
            raise Refuse("bad-field")
        return
    if t[1] not in LIMITS:
        raise Refuse("unknown-limit")
    if t[1] in limits:
        raise Refuse("duplicate-tag")
    if not re.fullmatch("0|[1-9][0-9]{0,15}", t[2]):
        raise Refuse("bad-field")
    limits[t[1]] = int(t[2])


def read_grant(tags):
    """The subject, tier, limits and scopes of a node's grant."""
    one, limits, scopes = {}, {}, 0
    for t in tags:
        if t[0] == "limit":
            read_limit(limits, t)
        elif t[0] == "scope":
            if t[1] not in ("push", "pull") or not is_filter(t[2]):
                raise Refuse("bad-scope")
            scopes += 1
        elif t[0] != "schedule":
            if t[0] in one:
                raise Refuse("duplicate-tag")
            one[t[0]] = t
    if [t[1:] for t in tags if t[0] == "schedule"] != [[decimal(x["ratio"]), x["severity"]] for x in C["schedule"]]:
        raise Refuse("bad-schedule")
    if one["settlement"][1] != "none":
        raise Refuse("bad-settlement")
    if one["tier"][1] not in [t["name"] for t in C["tiers"]] + ["revoked"]:
        raise Refuse("unknown-tier")
    return one, limits, scopes


def grant(i):
    e, secret = i["event"], bytes.fromhex(i["secret"])
    tags = {t[0]: t[1:] for t in e["tags"]}
    seconds = int(tags["window"][0])
    if tags["scheme"] != [C["commitment"]["scheme"], C["commitment"]["content_scheme"]]:
        raise Refuse("bad-scheme")
    if not C["window"]["min_seconds"] <= seconds <= C["window"]["max_seconds"]:
        raise Refuse("bad-window")
    if int(tags["epoch"][0]) != e["created_at"] // seconds:
        raise Refuse("bad-epoch")
    shared = curve.shared_x(secret, bytes.fromhex(e["pubkey"]))
    labels = C["blinding"]["grant"]
    if hkdf(shared, labels["salt"].encode(), labels["info"].encode(), C["blinding"]["length"]).hex() != tags["d"][0]:
        raise Refuse("wrong-blind-tag")
    body = json.loads(decrypt(shared, e["content"]))
    one, limits, scopes = read_grant(body["tags"])
    if commit(body)["commit"] != tags["commit"][0]:
        raise Refuse("bad-commitment")
    subject, t = one["subject"][1], one["tier"][1]
    if bytes.fromhex(subject) != curve.public(secret):
        raise Refuse("not-for-subject")
    for n in LIMITS:
        if n not in limits:
            raise Refuse("missing-limit")
        if limits[n] > ceiling(n, t):
            raise Refuse("above-ceiling")
    return {"id": e["id"], "subject": "did:nostr:" + subject, "tier": t, "limits": limits, "scopes": scopes, "window": seconds}


def report(i):
    from report import judge

    support, code = judge(i)
    return {"support": support, "code": code}
