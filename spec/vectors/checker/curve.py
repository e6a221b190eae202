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


def _double(p):
    x, y, z = p
    a, b = x * x % P, y * y % P
    c = b * b % P
    d = 2 * ((x + b) * (x + b) - a - c) % P
    e = 3 * a % P
    x3 = (e * e - 2 * d) % P
    return x3, (e * (d - x3) - 8 * c) % P, 2 * y * z % P


def _add_affine(p, q):
    """Adds the affine q to p = (X, Y, Z), which stands for (X/Z^2, Y/Z^3); Z = 0 is no point."""
    if p[2] == 0:
        return q[0], q[1], 1
    x, y, z = p
    zz = z * z % P
    h, r = (q[0] * zz - x) % P, (q[1] * zz * z - y) % P
    if h == 0:
        return _double(p) if r == 0 else (1, 1, 0)
    hh = h * h % P
    hhh, v = h * hh % P, x * hh % P
    x3 = (r * r - hhh - 2 * v) % P
    return x3, (r * (v - x3) - y * hhh) % P, z * h % P


def mul(p, k):
    out = (1, 1, 0)
    for bit in bin(k)[2:]:
        out = _double(out)
        if bit == "1":
            out = _add_affine(out, p)
    if out[2] == 0:
        return None
    inverse = pow(out[2], -1, P)
    return out[0] * inverse * inverse % P, out[1] * inverse * inverse * inverse % P


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
