"""The node's own ceiling, from constants.json. How reserves follow strain is each node's own affair and is not
checked here."""
from fractions import Fraction

from ledger import C, ceiling, frac

RUNGS = [(r["name"], frac(r["at"])) for r in C["capacity"]["rungs"]]
RELEASE = frac(C["capacity"]["release_below"])


def pressure(total, used):
    """The fraction used of the counter that used the most, and its name."""
    found = [(Fraction(used.get(n, 0), total[n]), n) for n in C["counters"] if total.get(n)]
    return max(found, key=lambda x: x[0], default=(Fraction(0), ""))


def ladder(i):
    engaged, out = 0, []
    for used in i["windows"]:
        p, name = pressure(i["total"], used)
        announced = []
        if p < RELEASE:
            announced = ["-" + n for n, _ in RUNGS[:engaged]]
            engaged = 0
        while engaged < len(RUNGS) and p >= RUNGS[engaged][1]:
            announced.append("+" + RUNGS[engaged][0])
            engaged += 1
        out.append({"announced": announced, "counter": name, "engaged": engaged, "percent": int(p * 100)})
    return out


def shed(i):
    p = Fraction(i["used"], i["total"])
    if p < RELEASE:
        return i["base"]
    least = int(ceiling(i["limit"], C["capacity"]["floor_of_tier"]) * frac(C["capacity"]["floor"]))
    return min(i["base"], max(least, int(i["base"] * RELEASE / p)))
