#!/usr/bin/env bash
# Builds meshnode, a peer and bench, serves both relays on this machine with fresh stores, and measures them against each
# other. All arguments go to `bench relay`. PEER=khatru|rely chooses the peer (default khatru), STORE=lmdb|bolt|slice khatru's store,
# TAGS=libsecp256k1 the peer's verifier (lmdb and libsecp256k1 want a C compiler). rely does not answer NIP-77: leave neg out.
# Examples: bench/compare.sh --events 40000 --json >result.json; PEER=rely bench/compare.sh --phases ingest,query,fanout
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
pids=()
finish() {
  for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
  wait || true
  rm -rf "$work"
}
trap finish EXIT

(cd "$here/.." && CGO_ENABLED=0 go build -trimpath -o "$work/meshnode" ./cmd/meshnode && CGO_ENABLED=0 go build -o "$work/bench" ./bench)
peer=${PEER:-khatru}
flags=()
# rely's events and its store's come from two modules that each bring libsecp256k1 along.
if [ "$peer" = rely ] && [ -n "${TAGS:-}" ]; then flags=(-ldflags "-extldflags=-Wl,--allow-multiple-definition"); fi
(cd "$here/$peer" && go build -tags "${TAGS:-}" "${flags[@]}" -o "$work/peer" .)

"$work/meshnode" --dir "$work/m" init >/dev/null
# One operator measures: the rates meant for strangers are off.
sed -i '0,/^  relay:$/s//  relay:\n    limits: {eventsPerSecond: -1, requestsPerSecond: -1, bytesPerSecond: -1, connectionsPerIp: -1}/' "$work/m/node.yaml"
"$work/meshnode" up --json --dir "$work/m" --listen 127.0.0.1:0 >"$work/m.out" 2>"$work/m.err" &
pids+=($!)
"$work/peer" --dir "$work/k" ${STORE:+--store "$STORE"} >"$work/k.out" 2>"$work/k.err" &
pids+=($!)
url() {
  for _ in $(seq 100); do
    if u=$(grep -o 'ws://[^"]*' "$work/$1.out" | head -1) && [ -n "$u" ]; then echo "$u"; return; fi
    sleep 0.1
  done
  cat "$work/$1.err" >&2
  return 1
}
m=$(url m) k=$(url k)
sleep 5 # a new node mines its descriptor
"$work/bench" relay --target meshnode="$m" --target "$peer=$k" --pid meshnode="${pids[0]}" --pid "$peer=${pids[1]}" \
  --dir meshnode="$work/m/store" --dir "$peer=$work/k" "$@"
