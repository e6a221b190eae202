#!/usr/bin/env bash
# Runs everything that says whether fleetmesh is sound, installing what the tests need:
# formatting, vet, staticcheck, all Go tests (the race detector where goroutines live), and
# foreign Nostr clients against the real binary. Usage: ./test.sh [quick]
set -euo pipefail
cd "$(dirname "$0")"
quick=${1:-}
export CGO_ENABLED=${CGO_ENABLED:-0}

step() { printf '\n== %s\n' "$*"; }

step "Go $(go version | cut -d' ' -f3)"
unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then echo "not formatted: $unformatted"; exit 1; fi

step "go vet, staticcheck"
go vet ./...
go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

step "static builds for amd64 and arm64"
for arch in amd64 arm64; do
  for tool in meshnode meshctl; do
    GOOS=linux GOARCH=$arch go build -trimpath -o "${TMPDIR:-/tmp}/$tool-$arch-$$" ./cmd/$tool
    rm -f "${TMPDIR:-/tmp}/$tool-$arch-$$"
  done
done

if [ "$quick" = quick ]; then
  step "go test (quick)"
  exec go test -short ./...
fi

step "what the tests need beside Go"
# Foreign clients (nodejs, npm), the exports' own checkers (systemd, cloud-init, docker-compose), network namespaces
# (iproute2), a PostgreSQL, libsecp256k1 to compare verdicts with, an emulator for the arm64 package.
missing=
for need in npm:npm node:nodejs zsh:zsh fish:fish mandoc:mandoc caddy:caddy nginx:nginx-light lintian:lintian prlimit:util-linux podman:podman runc:runc dpkg-deb:dpkg systemd-analyze:systemd cloud-init:cloud-init docker-compose:docker-compose ip:iproute2 gcc:gcc chromium:chromium qemu-aarch64-static:qemu-user-static; do
  command -v "${need%%:*}" >/dev/null || missing="$missing ${need##*:}"
done
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
[ -e /usr/include/secp256k1_schnorrsig.h ] || missing="$missing libsecp256k1-dev"
if [ -n "$missing" ]; then
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing
  else
    echo "not installed:$missing: the tests that need them are skipped"
  fi
fi

step "go test"
go test -timeout 30m ./...

step "the LMDB store (cgo, -tags lmdb)"
if command -v gcc >/dev/null || command -v cc >/dev/null; then
  CGO_ENABLED=1 go vet -tags lmdb ./internal/store/lmdb ./internal/daemon
  CGO_ENABLED=1 go test -short -timeout 20m -tags lmdb ./internal/store/lmdb
else
  echo "no C compiler here, which LMDB needs: skipped"
fi

step "race detector"
if command -v gcc >/dev/null || command -v cc >/dev/null; then
  # What internal/interop tests runs in processes of its own, which this would not look into.
  CGO_ENABLED=1 go test -race -short -timeout 25m $(go list ./... | grep -v /internal/interop)
else
  echo "no C compiler here, which the race detector needs: skipped"
fi
