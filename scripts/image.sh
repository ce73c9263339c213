#!/usr/bin/env bash
# Builds the container image: scripts/image.sh [NAME], by default `tallystone`.
# TALLYSTONE_PROGRAM sets a program that is already built, with the module of the compact store in its folder, or where
# TALLYSTONE_COMPACT_MODULE says. CONTAINER_ENGINE sets an engine other than podman.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=${TALLYSTONE_PROGRAM:-}
if [ -z "$program" ]; then
  cargo build --release --locked -p tallystone -p tallystone-compact-module
  program=${CARGO_TARGET_DIR:-target}/release/tallystone
fi
library=libtallystone_compact_module.so
module=${TALLYSTONE_COMPACT_MODULE:-$(dirname "$program")/$library}
context=$(mktemp -d)
trap 'rm -r "$context"' EXIT
# The symbols of the program are three quarters of it.
strip -o "$context/tallystone" "$program"
strip --strip-unneeded -o "$context/$library" "$module"
engine=${CONTAINER_ENGINE:-podman}
format=()
# Podman's own format has no health check.
[ "$engine" != podman ] || format=(--format docker)
"$engine" build "${format[@]}" --file deploy/Containerfile --tag "${1:-tallystone}" "$context"
