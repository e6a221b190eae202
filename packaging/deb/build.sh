#!/bin/sh
# Makes a Debian package of what packaging/release.sh built. Usage: packaging/deb/build.sh VERSION ARCH DIRECTORY
set -eu
version=$1 arch=$2 out=$3
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1767225600}
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
umask 022
put() { install -D -m "$1" "$2" "$root/$3"; }
put 755 "$out/linux-$arch/meshnode" usr/bin/meshnode
put 755 "$out/linux-$arch/meshctl" usr/bin/meshctl
put 644 "$here/meshnode.service" usr/lib/systemd/system/meshnode.service
put 644 "$here/sysusers.conf" usr/lib/sysusers.d/meshnode.conf
put 644 "$here/copyright" usr/share/doc/meshnode/copyright
put 644 "$here/lintian-overrides" usr/share/lintian/overrides/meshnode
for file in "$top/packaging/caddy/Caddyfile" "$top/packaging/nginx/meshnode.conf" "$top/packaging/grafana/dashboard.json"; do
  put 644 "$file" "usr/share/doc/meshnode/examples/$(basename "$file")"
done
printf 'meshnode (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the source.\n\n -- The fleetmesh authors <fleetmesh@fleetmesh.org>  %s\n' "$version" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" \
  | gzip -9n > "$root/changelog.gz"
put 644 "$root/changelog.gz" usr/share/doc/meshnode/changelog.gz
rm "$root/changelog.gz"
for tool in meshnode meshctl; do
  gzip -9n < "$out/share/$tool.1" > "$root/page.gz"
  put 644 "$root/page.gz" "usr/share/man/man1/$tool.1.gz"
  rm "$root/page.gz"
  put 644 "$out/share/$tool.bash" "usr/share/bash-completion/completions/$tool"
  put 644 "$out/share/$tool.zsh" "usr/share/zsh/vendor-completions/_$tool"
  put 644 "$out/share/$tool.fish" "usr/share/fish/vendor_completions.d/$tool.fish"
done
mkdir "$root/DEBIAN"
size=$(du -sk --exclude=DEBIAN "$root" | cut -f1)
sed "s/@VERSION@/$version/; s/@ARCH@/$arch/; s/@SIZE@/$size/" "$here/control.in" > "$root/DEBIAN/control"
for script in postinst prerm postrm; do install -m 755 "$here/$script" "$root/DEBIAN/$script"; done
(cd "$root" && find usr -type f | sort | xargs md5sum) > "$root/DEBIAN/md5sums"
dpkg-deb --root-owner-group -Zxz --build "$root" "$out/meshnode_${version}_$arch.deb" >/dev/null
