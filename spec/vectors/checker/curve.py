"""secp256k1: the x coordinate of an ECDH point, and BIP-340 verification."""
import hashlib

P = 2**256 - 2**32 - 977
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
G = (0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
     0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8)


def add(a, b):
    if a is None:
        return b
    if b is None:
        return a
    if a[0] == b[0] and (a[1] + b[1]) % P == 0:
        return None
    if a == b:
        m = 3 * a[0] * a[0] * pow(2 * a[1], -1, P)
    else:
        m = (b[1] - a[1]) * pow(b[0] - a[0], -1, P)
    x = (m * m - a[0] - b[0]) % P
    return x, (m * (a[0] - x) - a[1]) % P


def mul(p, k):
    out = None
    while k:
        if k & 1:
            out = add(out, p)
        p, k = add(p, p), k >> 1
    return out


def lift_x(x):
    """The point of even y with this x, None if there is none."""
    if x >= P:
        return None
    c = (pow(x, 3, P) + 7) % P
    y = pow(c, (P + 1) // 4, P)
    if y * y % P != c:
        return None
    return x, y if y % 2 == 0 else P - y


def public(secret):
    return mul(G, int.from_bytes(secret, "big"))[0].to_bytes(32, "big")


def shared_x(secret, pubkey):
    point = mul(lift_x(int.from_bytes(pubkey, "big")), int.from_bytes(secret, "big"))
    return point[0].to_bytes(32, "big")


def tagged(tag, data):
    t = hashlib.sha256(tag.encode()).digest()
    return hashlib.sha256(t + t + data).digest()


def verify(pubkey, message, sig):
    p = lift_x(int.from_bytes(pubkey, "big"))
    r, s = int.from_bytes(sig[:32], "big"), int.from_bytes(sig[32:], "big")
    if p is None or len(sig) != 64 or r >= P or s >= N:
        return False
    e = int.from_bytes(tagged("BIP0340/challenge", sig[:32] + pubkey + message), "big") % N
    q = add(mul(G, s), mul(p, N - e))
    return q is not None and q[1] % 2 == 0 and q[0] == r
