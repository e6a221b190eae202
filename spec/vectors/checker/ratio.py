"""Exact rationals."""
from fractions import Fraction


def _ratio(r):
    return Fraction(r["num"], r["den"])


def floor(i):
    return min(int(max(i["n"], 0) * _ratio(i["ratio"])), 2**63 - 1)


def compare(i):
    if i["den"] == 0 and i["num"] > 0:
        return 1
    d = (Fraction(0) if i["num"] == 0 else Fraction(i["num"], i["den"])) - _ratio(i["ratio"])
    return (d > 0) - (d < 0)
