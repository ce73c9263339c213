# shellcheck shell=bash
# What ./quickstart and ./test need before they can build and run. Source it; it installs what is missing where it may
# (apt-get, as root or by sudo) and else says exactly what to do. Everything it says goes to stderr.

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

install_packages() {
  local packages=()
  have cc || packages+=(build-essential)
  have setpriv || packages+=(util-linux)
  have "${TALLYSTONE_REDIS_SERVER:-redis-server}" || packages+=(redis-server)
  [ ${#packages[@]} -gt 0 ] || return 0

  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    # Where nobody can type a password, sudo may not ask for one.
    if [ -t 0 ]; then as_root=(sudo); else as_root=(sudo -n); fi
  fi
  if ! have apt-get || { [ "$(id -u)" -ne 0 ] && ! have sudo; }; then
    say "Missing: ${packages[*]} (names of Debian's packages). Please install:"
    say "  Debian, Ubuntu: sudo apt-get install ${packages[*]}"
    say "  Fedora:         sudo dnf install gcc redis util-linux"
    say "  Arch:           sudo pacman -S gcc valkey util-linux   # and: export TALLYSTONE_REDIS_SERVER=valkey-server"
    return 1
  fi
  say "Installing ${packages[*]} ..."
  # RUNLEVEL: the package's own service is not wanted; every Redis of ours is started by us.
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get install -y --no-install-recommends "${packages[@]}")
  # The package lists may be absent or old: fetch them only if the install fails without.
  if ! "${install[@]}" >&2; then
    "${as_root[@]}" apt-get update >&2
    "${install[@]}" >&2
  fi
}

find_cargo() {
  have cargo || export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  have cargo && return 0
  say "Rust is not installed. Install it (https://rustup.rs), then run this again:"
  say "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
  return 1
}

install_packages
find_cargo

# One place for what is built, so that the program can be called without asking cargo again.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
tallystone() { "$CARGO_TARGET_DIR/release/tallystone" "$@"; }
