#!/usr/bin/env bash
# Checks that the published crates, tallystone-proto and tallystone-client, build from their packages alone, and that
# they build, with all features, with the oldest Rust that they claim to support. Needs cargo 1.90 or later, and rustup for the second part:
# where rustup cannot install that Rust, the part is skipped with a line that begins with SKIPPED. In CI, too: toolchains do not come
# from a registry of packages, so a machine that reaches only those cannot install them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh
install_packages
find_cargo

# No one debugs what is built here. Debug information would take a quarter of the time.
export CARGO_PROFILE_DEV_DEBUG=false
published=(-p tallystone-proto -p tallystone-client)

# The packages are built from a local registry, so the client finds the protocol crate before it is published. Cargo
# assumes that a version never changes: it would build the client with the protocol crate that an earlier run unpacked
# and compiled. So both go first. Only local registries have folders whose names begin with a hyphen.
rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/tallystone-* "$CARGO_TARGET_DIR"/debug/.fingerprint/tallystone-*
cargo publish --dry-run --locked --allow-dirty --quiet "${published[@]}"
say "The packages build."

oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' client/Cargo.toml)
if have rustup && rustup toolchain install "$oldest" --profile minimal --no-self-update >&2; then
  # Another compiler shares nothing with the build of today's.
  CARGO_TARGET_DIR="$CARGO_TARGET_DIR/rust-$oldest" cargo "+$oldest" check --locked --quiet --all-features "${published[@]}"
  say "They build with Rust $oldest, with all features."
else
  say "SKIPPED: rustup cannot install Rust $oldest, so it is NOT tested whether the packages build with it."
fi
