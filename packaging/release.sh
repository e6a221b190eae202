#!/bin/sh
# Builds what a release holds: static binaries for linux on amd64 and arm64, manual pages, completions, Debian packages where dpkg-deb is there,
# and the checksums of all. The same source and Go give the same octets. Usage: packaging/release.sh VERSION DIRECTORY
set -eu
version=${1:?which version? such as 0.1.0}
out=${2:?into which directory?}
cd "$(dirname "$0")/.."
mkdir -p "$out"
out=$(cd "$out" && pwd)
export CGO_ENABLED=0 GOOS=linux SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}
host=$(go env GOHOSTARCH)
for arch in ${ARCHS:-amd64 arm64}; do
  dir=$out/linux-$arch
  mkdir -p "$dir"
  for tool in meshnode meshctl; do
    GOARCH=$arch go build -trimpath -ldflags "-s -w -X main.version=$version" -o "$dir/$tool" "./cmd/$tool"
  done
done
mkdir -p "$out/share"
for tool in meshnode meshctl; do
  run=$out/linux-$host/$tool
  [ -x "$run" ] || { run=$out/$tool.tmp; GOARCH=$host go build -trimpath -ldflags "-X main.version=$version" -o "$run" "./cmd/$tool"; }
  "$run" man > "$out/share/$tool.1"
  for shell in bash zsh fish; do "$run" completion $shell > "$out/share/$tool.$shell"; done
done
rm -f "$out"/*.tmp
if command -v dpkg-deb >/dev/null; then
  for arch in ${ARCHS:-amd64 arm64}; do packaging/deb/build.sh "$version" "$arch" "$out"; done
fi
(cd "$out" && find . -type f ! -name SHA256SUMS | sort | xargs sha256sum > SHA256SUMS)
