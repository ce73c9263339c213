# shellcheck shell=bash
# What the other scripts share: how they speak, and how they install Debian's packages. Source it.

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# Runs apt-get, as root or by sudo; false where it cannot.
can_apt() { have apt-get && { [ "$(id -u)" -eq 0 ] || have sudo; }; }
apt_install() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    # Where nobody can type a password, sudo may not ask for one.
    if [ -t 0 ]; then as_root=(sudo); else as_root=(sudo -n); fi
  fi
  say "Installing $* ..."
  # RUNLEVEL: the packages' own services are not wanted; every process of ours is started by us.
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get install -y --no-install-recommends "$@")
  # The package lists may be absent or old: fetch them only if the install fails without.
  if ! "${install[@]}" >&2; then
    "${as_root[@]}" apt-get update >&2
    "${install[@]}" >&2
  fi
}
