"""Blinded tags and commitments."""
import hashlib
import hmac


def hkdf(ikm, salt, info, length):
    """RFC 5869 with SHA-256."""
    key = hmac.new(salt, ikm, hashlib.sha256).digest()
    out, block, n = b"", b"", 1
    while len(out) < length:
        block = hmac.new(key, block + info + bytes([n]), hashlib.sha256).digest()
        out, n = out + block, n + 1
    return out[:length]


def tag(i):
    return hkdf(bytes.fromhex(i["shared_x"]), i["salt"].encode(), i["info"].encode(), 32).hex()


def commit(i):
    return hashlib.sha256(bytes.fromhex(i["blinding"]) + i["text"].encode("utf-8")).hexdigest()
