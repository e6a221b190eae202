"""Node identity: keys, descriptors and what else a node says of itself. did:peer and the services of a resolved
document are not checked here."""
import hashlib
import re

import curve
from blinding import hkdf
from canonical import write
from ledger import C, event_id, is_filter
from refuse import Refuse

CLASSES = {c["name"]: c for c in C["classes"]}
ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
CODECS = {bytes([0xE7, 1]): ("secp256k1", 33), bytes([0xEC, 1]): ("X25519", 32), bytes([0xED, 1]): ("Ed25519", 32)}
P25519 = 2**255 - 19
D25519 = -121665 * pow(121666, -1, P25519) % P25519
# The points of the Montgomery curve and its twist whose multiples by 8 vanish, and their unreduced twins.
SMALL_X25519 = {0, 1, P25519 - 1, P25519, P25519 + 1,
                325606250916557431795983626356110631294008115727848805560023387167927233504,
                39382357235489614581723060781553021112529911719440698176882885853963445705823}


def derive(i):
    return hkdf(bytes.fromhex(i["node"]), bytes(32), f"{C['provisioning']['info_prefix']}{i['role']}/{i['counter']}".encode(), 32).hex()


def key(text):
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise Refuse("bad-did")
    if curve.lift_x(int(text, 16)) is None:
        raise Refuse("off-curve-key")
    return text


def parse_did(text):
    m = re.fullmatch("did:nostr:([0-9a-f]{64})(?:#(.*))?", text)
    if not m:
        raise Refuse("bad-did")
    return key(m[1]), m[2] or ""


def did(text):
    k, fragment = parse_did(text)
    return {"key": k, "fragment": fragment}


def base58(data):
    n, out = int.from_bytes(data, "big"), ""
    while n:
        n, r = divmod(n, 58)
        out = ALPHABET[r] + out
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + out


def ed25519_point(data):
    """Whether the octets are a point of more than small order."""
    y, sign = int.from_bytes(data, "little") & (2**255 - 1), data[31] >> 7
    if y >= P25519:
        return False
    xx = (y * y - 1) * pow(D25519 * y * y + 1, -1, P25519) % P25519
    x = pow(xx, (P25519 + 3) // 8, P25519)
    if x * x % P25519 != xx:
        x = x * pow(2, (P25519 - 1) // 4, P25519) % P25519
    if x * x % P25519 != xx or x == 0 and sign:
        return False
    p = (x, y)
    for _ in range(3):
        (a, b), k = p, D25519 * p[0] * p[0] * p[1] * p[1]
        p = (2 * a * b * pow(1 + k, -1, P25519) % P25519, (b * b + a * a) * pow(1 - k, -1, P25519) % P25519)
    return p != (0, 1)


def read_multikey(text):
    if not re.fullmatch("f([0-9a-f]{2})+", text):
        raise Refuse("bad-multikey")
    data = bytes.fromhex(text[1:])
    name, size = CODECS.get(data[:2], ("", 0))
    if not name or len(data) != 2 + size:
        raise Refuse("bad-multikey")
    body = data[2:]
    if name == "Ed25519" and not ed25519_point(body) or \
            name == "X25519" and int.from_bytes(body, "little") & (2**255 - 1) in SMALL_X25519 or \
            name == "secp256k1" and curve.lift_x(int.from_bytes(body[1:], "big")) is None:
        raise Refuse("off-curve-key")
    return name, body, data


def multikey(text):
    name, body, data = read_multikey(text)
    return {"base16": text, "base58": "z" + base58(data), "curve": name, "key": body.hex()}


def endpoints_digest(endpoints):
    pairs = sorted({(e["scheme"], e["address"]) for e in endpoints})
    return hashlib.sha256(write([list(p) for p in pairs]).encode()).hexdigest()


def number(text):
    if not re.fullmatch("0|[1-9][0-9]*", text):
        raise Refuse("bad-tag")
    return int(text)


def signed(e):
    if event_id(e) != e["id"] or not curve.verify(bytes.fromhex(e["pubkey"]), bytes.fromhex(e["id"]), bytes.fromhex(e["sig"])):
        raise Refuse("bad-signature")


def subject_of(i):
    e = i["event"]
    if "subject" in i and parse_did(i["subject"])[0] != e["pubkey"]:
        raise Refuse("wrong-subject")
    return e


def single(tags, names):
    for n in names:
        if sum(t[0] == n for t in tags) > 1:
            raise Refuse("duplicate-tag")
    return {t[0]: t[1:] for t in tags if t[0] in names}


def read_descriptor(e):
    if e["kind"] != 11801:
        raise Refuse("wrong-kind")
    tags = e["tags"]
    one = single(tags, ("class", "protocol", "software", "nips", "coverage", "policy", "operator", "expiration", "nonce"))
    many = {n: [t[1:] for t in tags if t[0] == n] for n in ("key", "endpoint", "mediator", "c")}
    many["key"] = [k for k in many["key"] if k[0] in ("agreement", "transport")]  # other roles are a later version's
    if "protocol" not in one:
        raise Refuse("no-protocol")
    if "class" not in one:
        raise Refuse("no-class")
    if "expiration" not in one:
        raise Refuse("no-expiration")
    if one["class"][0] not in CLASSES:
        raise Refuse("unknown-class")
    for digest in [one["protocol"][1], *one.get("policy", [])[:1], *one.get("coverage", [])[:1]]:
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise Refuse("bad-digest")
    number(one["expiration"][0])
    if "operator" in one:
        key(one["operator"][0])
    for k in many["key"]:
        name, _, _ = read_multikey(k[1])
        if name != {"agreement": "X25519", "transport": "Ed25519"}[k[0]]:
            raise Refuse("bad-multikey")
    for p in many["endpoint"]:
        if len(p) < 2 or not all(p[:2]):
            raise Refuse("bad-tag")
    if any(parse_did(m[0])[0] == e["pubkey"] for m in many["mediator"]):
        raise Refuse("self-mediator")
    for role in ("agreement", "transport"):
        if not any(k[0] == role for k in many["key"]):
            raise Refuse(f"no-{role}-key")
    for name in ("peering", "budget"):
        if not any(re.fullmatch(re.escape(C["protocol"]["piuri_base"] + name) + r"/\d+\.\d+", c[0]) for c in many["c"]):
            raise Refuse(f"no-{name}-protocol")
    return one, many


def live_agreement(many, now):
    return next((k[1] for k in many["key"] if k[0] == "agreement" and (len(k) < 3 or now < int(k[2]))), None)


def check_class(name, one, many):
    if ["mediator"] in many["c"] and not CLASSES[name]["mediates"]:
        raise Refuse("class-mediates")
    if name == "anchor" and not any(p[0] == "wss" for p in many["endpoint"]):
        raise Refuse("anchor-without-wss")
    if name == "leaf":
        for fault, code in ((many["endpoint"], "leaf-with-endpoint"), (not many["mediator"], "leaf-no-mediator"), ("coverage" in one, "leaf-with-coverage")):
            if fault:
                raise Refuse(code)


def check_work(e, one, bits):
    if not bits:
        return
    if "nonce" not in one:
        raise Refuse("pow-missing")
    if int(one["nonce"][1]) < bits:
        raise Refuse("pow-uncommitted")
    if int(e["id"], 16) >> (256 - bits):
        raise Refuse("pow-short")


def descriptor(i, given):
    e = subject_of(i) if i["event"]["kind"] == 11801 else i["event"]
    one, many = read_descriptor(e)
    signed(e)
    now, ends, name = i["now"], int(one["expiration"][0]), one["class"][0]
    if now >= ends:
        raise Refuse("expired")
    if e["created_at"] > now + C["window"]["skew_seconds"]:
        raise Refuse("not-yet")
    if ends - e["created_at"] > CLASSES[name]["descriptor_max_seconds"]:
        raise Refuse("over-lifetime")
    agreement = live_agreement(many, now)
    if agreement is None:
        raise Refuse("stale-agreement-key")
    check_class(name, one, many)
    check_work(e, one, i["pow_bits"])
    me = "did:nostr:" + e["pubkey"]
    transport = next(k[1] for k in many["key"] if k[0] == "transport")
    methods = [{"id": n, "type": "Multikey", "controller": me, "publicKeyMultibase": k} for n, k in
               (("#nostr", "fe70102" + e["pubkey"]), ("#agree", agreement), ("#wire", transport))]
    document = {"@context": ["https://www.w3.org/ns/cid/v1", "https://w3id.org/nostr/context"], "id": me, "verificationMethod": methods,
                "authentication": ["#nostr"], "assertionMethod": ["#nostr"], "keyAgreement": ["#agree"]}
    document["service"] = ((given or {}).get("document") or {}).get("service")
    return {"agreement": agreement, "class": name, "did": me, "document": document,
            "endpoints_digest": endpoints_digest([{"scheme": p[0], "address": p[1]} for p in many["endpoint"]])}


descriptor.wants_output = True


def transport(i):
    one, many = read_descriptor(i["event"])
    if i["now"] >= int(one["expiration"][0]):
        raise Refuse("expired")
    if not any(k[0] == "transport" and k[1] == i["key"] for k in many["key"]):
        raise Refuse("unknown-transport-key")
    return "did:nostr:" + i["event"]["pubkey"]


def heartbeat(i):
    one, many = read_descriptor(i["descriptor"])
    tags = {t[0]: t[1] for t in i["event"]["tags"]}
    if tags["class"] == "leaf":
        raise Refuse("leaf-heartbeat")
    if tags["class"] != one["class"][0]:
        raise Refuse("class-mismatch")
    if tags.get("endpoints") not in (None, endpoints_digest([{"scheme": p[0], "address": p[1]} for p in many["endpoint"]])):
        raise Refuse("stale-endpoints")
    return {"class": tags["class"]}


def revocation(i):
    e = subject_of(i)
    signed(e)
    tags = {t[0]: t[1] for t in e["tags"]}
    out = {"subject": "did:nostr:" + e["pubkey"], "reason": tags.get("reason", "")}
    successor = tags.get("successor", "")
    if re.fullmatch("[0-9a-f]{64}", successor) and successor != e["pubkey"] and curve.lift_x(int(successor, 16)):
        out["successor"] = "did:nostr:" + successor
    return out


def coverage(i):
    tags = {t[0]: t[1:] for t in i["event"]["tags"]}
    if "filter" not in tags or not tags.get("d", [""])[0] or not is_filter(tags["filter"][0]):
        raise Refuse("bad-shard")
    if tags["completeness"][0] not in C["coverage"]["completeness"]:
        raise Refuse("bad-completeness")
    if "fingerprint" in tags and not re.fullmatch("[0-9a-f]{32}", tags["fingerprint"][0]):
        raise Refuse("bad-tag")
    return {"completeness": tags["completeness"][0], "count": number(tags["count"][0]), "shard": tags["d"][0]}


def roster(i):
    e = i["event"]
    tags = {t[0]: t[1] for t in e["tags"]}
    admin, _, topic = tags["d"].partition(":")
    if admin != e["pubkey"] or not topic:
        raise Refuse("bad-roster")
    members = [t[1] for t in e["tags"] if t[0] == "member"]
    if not all(re.fullmatch("[0-9a-f]{64}", m) and curve.lift_x(int(m, 16)) for m in members):
        raise Refuse("bad-member")
    if "expiration" not in tags:
        raise Refuse("no-expiration")
    return {"admin": "did:nostr:" + admin, "members": len(members), "topic": topic}
