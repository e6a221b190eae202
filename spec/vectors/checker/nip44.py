"""NIP-44 version 2: opening a payload."""
import base64
import hashlib
import hmac
import struct

from refuse import Refuse


def _rotl(v, n):
    return ((v << n) | (v >> (32 - n))) & 0xFFFFFFFF


def _block(key, counter, nonce):
    start = list(struct.unpack("<4I8I", b"expand 32-byte k" + key)) + [counter] + list(struct.unpack("<3I", nonce))
    x = start[:]
    for _ in range(10):
        for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                           (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            for p, q, r, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[p] = (x[p] + x[q]) & 0xFFFFFFFF
                x[r] = _rotl(x[r] ^ x[p], n)
    return struct.pack("<16I", *((u + v) & 0xFFFFFFFF for u, v in zip(x, start)))


def chacha20(key, nonce, data):
    stream = b"".join(_block(key, n, nonce) for n in range(len(data) // 64 + 1))
    return bytes(u ^ v for u, v in zip(data, stream))


def expand(key, info, length):
    out, block, n = b"", b"", 1
    while len(out) < length:
        block = hmac.new(key, block + info + bytes([n]), hashlib.sha256).digest()
        out, n = out + block, n + 1
    return out[:length]


def padded(n):
    if n <= 32:
        return 32
    power = 1 << (n - 1).bit_length()
    chunk = 32 if power <= 256 else power // 8
    return chunk * ((n - 1) // chunk + 1)


def decrypt(shared_x, payload):
    """Returns the text, or refuses: not-for-subject."""
    try:
        raw = base64.b64decode(payload, validate=True)
    except ValueError:
        raise Refuse("not-for-subject") from None
    key = hmac.new(b"nip44-v2", shared_x, hashlib.sha256).digest()
    nonce, sealed, mac = raw[1:33], raw[33:-32], raw[-32:]
    keys = expand(key, nonce, 76)
    if raw[:1] != b"\x02" or len(raw) < 99 or not hmac.compare_digest(hmac.new(keys[44:], nonce + sealed, hashlib.sha256).digest(), mac):
        raise Refuse("not-for-subject")
    plain = chacha20(keys[:32], keys[32:44], sealed)
    n = struct.unpack(">H", plain[:2])[0]
    if n == 0 or len(plain) != 2 + padded(n):
        raise Refuse("not-for-subject")
    return plain[2:2 + n].decode("utf-8")
