#!/usr/bin/env bash
# Runs `./bootstrap demo` and `./bootstrap test` in a bare Debian 12, as a stranger with nothing installed would.
# Contract: `chroot_check.sh FOLDER [demo|test|all]` as root. FOLDER/base.tar keeps the pristine system, made once with
# debootstrap; FOLDER/root is laid anew from it every time, and the commit HEAD goes into it as an archive, without git.
# Exit 0 where all went well; the seconds of each part are printed. $MIRROR chooses another mirror
# than debootstrap's own.
set -euo pipefail

folder=${1:?usage: chroot_check.sh FOLDER [demo|test|all]}
what=${2:-all}
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
root=$folder/root

[[ $(id -u) -eq 0 ]] || { echo "chroot_check: must be root, for debootstrap and chroot" >&2 && exit 2; }
command -v debootstrap >/dev/null || { echo "chroot_check: needs debootstrap (apt-get install debootstrap)" >&2 && exit 2; }
mkdir -p "$folder"

unmount() {
  local mounted
  for mounted in proc dev; do
    if mountpoint -q "$root/$mounted"; then umount -R "$root/$mounted"; fi
  done
}
trap unmount EXIT

if [[ ! -f $folder/base.tar ]]; then
  echo "== debootstrap"
  rm -rf "$folder/base"
  debootstrap --variant=minbase bookworm "$folder/base" ${MIRROR+"$MIRROR"} >"$folder/debootstrap.log"
  tar -C "$folder/base" -cf "$folder/base.tar.part" .
  mv "$folder/base.tar.part" "$folder/base.tar"
  rm -rf "$folder/base"
fi

unmount
rm -rf "$root"
mkdir -p "$root"
tar -C "$root" -xf "$folder/base.tar"
mkdir "$root/logitgate"
git -C "$source_dir" archive HEAD | tar -C "$root/logitgate" -x
cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"

run() { # a bootstrap command
  local start=$SECONDS status=0
  echo "== ./bootstrap $1"
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
    chroot "$root" /logitgate/bootstrap "$1" || status=$?
  echo "== ./bootstrap $1: exit $status after $((SECONDS - start)) s"
  return $status
}
if [[ $what == demo || $what == all ]]; then run demo; fi
if [[ $what == test || $what == all ]]; then run test; fi
