#!/usr/bin/env bash
# What the tests of `./test --containers` need: podman, and the images debian:bookworm-slim and redis:7. Where no registry
# answers, both are made from Debian's packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

# The names of containers resolve by one of the plugins, as podman has chosen its network.
{ have podman && have runc && have catatonit; } ||
  apt_install podman runc catatonit netavark aardvark-dns golang-github-containernetworking-plugin-dnsname
# In a virtual machine without systemd only runc starts, and only within the limits of this shell.
if [ -n "${CONTAINERS_CONF:-}" ]; then
  mkdir -p "$(dirname "$CONTAINERS_CONF")"
  cat >"$CONTAINERS_CONF" <<END
[engine]
runtime = "runc"
[containers]
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=4096:4096"]
END
fi
has_image() { podman image exists "$1"; }
pull() { timeout 120 podman pull --quiet "docker.io/library/$1" >/dev/null 2>&1; }

base=docker.io/library/debian:bookworm-slim
if ! has_image "$base" && ! pull debian:bookworm-slim; then
  have mmdebstrap || apt_install mmdebstrap
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  # The sources of this machine reach a mirror.
  mapfile -t sources < <(find /etc/apt/sources.list.d -name '*.sources')
  mmdebstrap --variant=minbase --include=ca-certificates,libssl3,redis-server bookworm "$dir/root.tar" "${sources[@]}"
  podman import --quiet "$dir/root.tar" "$base"
fi
if ! has_image docker.io/library/redis:7 && ! pull redis:7; then
  podman build --quiet --tag docker.io/library/redis:7 - <<'END'
FROM debian:bookworm-slim
RUN command -v redis-server || { apt-get update && apt-get install -y --no-install-recommends redis-server; }
CMD ["redis-server"]
END
fi
