#!/bin/sh
# The newcomer's path: from nothing to two federated nodes that a page and a monitor look at. It runs what the README says, times it, and cleans up.
# Usage: scripts/newcomer.sh [seconds, 300 by default]
set -eu
limit=${1:-300}
cd "$(dirname "$0")/.."
began=$(date +%s)
work=$(mktemp -d)
trap 'kill $(cat "$work"/*.pid 2>/dev/null) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
step() { echo "== $(($(date +%s) - began)) s: $*"; }

step "build"
go build -o "$work/" ./cmd/meshnode
PATH=$work:$PATH

start() { # NAME: a node with a port of its own; its URL and DID go into NAME.url and NAME.did
  meshnode up --json --dir "$work/$1" --listen 127.0.0.1:0 > "$work/$1.out" 2> "$work/$1.log" &
  echo $! > "$work/$1.pid"
  until grep -q '"event":"ready"' "$work/$1.out"; do
    kill -0 "$(cat "$work/$1.pid")" || { cat "$work/$1.log"; exit 1; }
    sleep 0.2
  done
  sed 's/.*"relay":"\([^"]*\)".*/\1/' "$work/$1.out" > "$work/$1.url"
  sed 's/.*"did":"\([^"]*\)".*/\1/' "$work/$1.out" > "$work/$1.did"
}

step "two nodes"
start alice
start bob
alice=$(cat "$work/alice.url") bob=$(cat "$work/bob.url")

step "until both have mined what they say of themselves"
for url in "$alice" "$bob"; do
  until curl -fsS "http${url#ws}/ready" > /dev/null 2>&1; do sleep 0.2; done
done

step "an event at one of them"
meshnode event --content "hello from alice" --relay "$alice" > /dev/null

step "each operator names the other"
meshnode --dir "$work/alice" peer add --relay "$bob" "$(cat "$work/bob.did")"
meshnode --dir "$work/bob" peer add --relay "$alice" "$(cat "$work/alice.did")"

step "until the other one has it"
until meshnode req --relay "$bob" '{"kinds":[1]}' | grep -q "hello from alice"; do
  [ $(($(date +%s) - began)) -lt "$limit" ] || { echo "not federated in $limit s"; tail "$work"/*.log; exit 1; }
  sleep 0.5
done
meshnode --dir "$work/bob" peer list

step "what a monitor says"
meshnode --dir "$work/alice" watch --offline
meshnode --dir "$work/bob" watch --offline

step "the page for people, and the counters"
http=http${bob#ws}
curl -fsS -H 'Accept: text/html' "$http/" | grep -q '<html'
curl -fsS "$http/ui/" | grep -qi '<html'
curl -fsS "$http/metrics" | grep 'meshnode_peers{stage="active"} 1'

took=$(($(date +%s) - began))
step "done"
[ "$took" -lt "$limit" ] || { echo "it took $took s, and $limit were allowed"; exit 1; }
