#!/usr/bin/env bash
# Puts the files of an image into a folder: for scripts/image.sh and for the Dockerfiles.
#
#   scripts/image-root.sh hub|agent FOLDER ROOT    from the binaries in FOLDER
#
# In it are the stripped programs, the shared libraries that they name, and for the hub the authorities of the web; no shell.
set -euo pipefail

if [[ $# -ne 3 ]]; then
  sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
image=$1 binaries=$2 root=$3
case "$image" in
  agent) programs=(nabu-agent) ;;
  hub) programs=(nabu-hub nabuctl) ;;
  *)
    echo "image: unknown image $image: hub or agent" >&2
    exit 2
    ;;
esac
authorities=/etc/ssl/certs/ca-certificates.crt
# Nobody in particular, by the number that base images without a shell have agreed on.
user=65532
umask 022
mkdir -p "$root"/{etc/nabu,tmp,var/lib/nabu}

for program in "${programs[@]}"; do
  strip -o "$root/$program" "$binaries/$program"
  # What the program is linked with, at the very paths where it looks; `=>` is followed by where that was found here.
  while read -r library; do
    install -D -m 0755 "$library" "$root$library"
  done < <(ldd "$binaries/$program" | sed -nE 's#^.*[[:space:]](/[^ ]+) \(0x[0-9a-f]+\)$#\1#p')
done
if [[ $image == hub ]]; then
  if [[ ! -e $authorities ]]; then
    echo "image: $authorities is missing; install the package ca-certificates" >&2
    exit 1
  fi
  install -D -m 0644 "$authorities" "$root$authorities"
fi
printf 'nonroot:x:%s:%s:nonroot:/:/sbin/nologin\n' "$user" "$user" >"$root/etc/passwd"
printf 'nonroot:x:%s:\n' "$user" >"$root/etc/group"
# Not every version of the C library looks into /etc/hosts first without being told, where a pod has its hostAliases.
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
chmod 1777 "$root/tmp"
