# shellcheck shell=bash
# What ./quickstart and ./test need before they can build and run. Source it; it installs what is missing where it may
# (apt-get, as root or by sudo) and else says exactly what to do. Everything it says goes to stderr.

# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

install_packages() {
  local packages=()
  have cc || packages+=(build-essential)
  have setpriv || packages+=(util-linux)
  have "${TALLYSTONE_REDIS_SERVER:-redis-server}" || packages+=(redis-server)
  [ ${#packages[@]} -gt 0 ] || return 0

  if ! can_apt; then
    say "Missing: ${packages[*]} (names of Debian's packages). Please install:"
    say "  Debian, Ubuntu: sudo apt-get install ${packages[*]}"
    say "  Fedora:         sudo dnf install gcc redis util-linux"
    say "  Arch:           sudo pacman -S gcc valkey util-linux   # and: export TALLYSTONE_REDIS_SERVER=valkey-server"
    return 1
  fi
  apt_install "${packages[@]}"
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
