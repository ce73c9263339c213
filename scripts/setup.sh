# shellcheck shell=bash
# What ./quickstart and ./test need before they can build and run: functions that install what is missing where they may
# (apt-get, as root or by sudo) and else say exactly what to do. Source it. Everything it prints goes to stderr.

# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# One place for build results, so that scripts know the path of the program.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
tallystone() { "$CARGO_TARGET_DIR/release/tallystone" "$@"; }

# The Debian packages that are missing, by name.
missing_packages() {
  local packages=()
  have cc || packages+=(build-essential)
  have setpriv || packages+=(util-linux)
  have "${TALLYSTONE_REDIS_SERVER:-redis-server}" || packages+=(redis-server)
  # OpenSSL for the TLS of the Kafka client.
  { have pkg-config && pkg-config --exists openssl; } || packages+=(libssl-dev pkg-config)
  echo "${packages[*]}"
}

install_packages() {
  local missing packages
  missing=$(missing_packages)
  [ -n "$missing" ] || return 0
  if ! can_apt; then
    say "Missing: $missing (names of Debian's packages). Please install:"
    say "  Debian, Ubuntu: sudo apt-get install $missing"
    say "  Fedora:         sudo dnf install gcc redis util-linux openssl-devel pkgconf"
    say "  Arch:           sudo pacman -S gcc valkey util-linux openssl pkgconf   # and: export TALLYSTONE_REDIS_SERVER=valkey-server"
    return 1
  fi
  read -ra packages <<<"$missing"
  apt_install "${packages[@]}"
}

find_cargo() {
  have cargo || export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  have cargo && return 0
  say "Rust is not installed. Install it (https://rustup.rs), then run this again:"
  say "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
  return 1
}
