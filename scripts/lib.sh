# shellcheck shell=bash
# What the other scripts share: how they print, and how they install Debian's packages. Source it.

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# Whether apt-get can run, as root or by sudo.
can_apt() { have apt-get && { [ "$(id -u)" -eq 0 ] || have sudo; }; }

# Lets sudo request the password now, while a person can see it: later steps run without a terminal.
may_install() {
  if can_apt && [ "$(id -u)" -ne 0 ] && [ -t 0 ]; then sudo -v; fi
}

# Fetches the package lists; as root or by sudo.
apt_update() {
  if [ "$(id -u)" -eq 0 ]; then apt-get update; elif have sudo; then sudo -n apt-get update; else return 1; fi
}

apt_install() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    # Without a terminal, no person can type a password: sudo must not wait for one.
    if [ -t 0 ]; then as_root=(sudo); else as_root=(sudo -n); fi
  fi
  say "Installing $* ..."
  # RUNLEVEL: apt must not start the packages' own services; the project starts every process itself.
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get install -y --no-install-recommends "$@")
  # The package lists may be absent or old: fetch them only if the install fails without.
  if ! "${install[@]}" >&2; then
    "${as_root[@]}" apt-get update >&2
    "${install[@]}" >&2
  fi
}
