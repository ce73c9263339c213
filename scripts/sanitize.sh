#!/usr/bin/env bash
# The tests of the compact store's module under an address sanitizer: reads and writes outside of an allocation, and of freed
# memory, end the engine with a report. Needs gcc (its libasan). Arguments are names of tests [default: those that measure neither
# time nor memory]. `./test --long` runs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

host=$(rustc -vV | sed -n 's/^host: //p')
runtime=$(gcc -print-file-name=libasan.so)
[ -e "$runtime" ] || { say "gcc has no libasan.so: install libgcc-dev (Debian: apt-get install gcc)."; exit 1; }

# The compiler accepts the option of a sanitizer only with this variable. The runtime is gcc's, which can be loaded before the engine.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Zexternal-clangrt" \
  cargo build --release --locked -p tallystone-compact-module --target "$host" --target-dir "$CARGO_TARGET_DIR/sanitized"
module="$CARGO_TARGET_DIR/sanitized/$host/release/libtallystone_compact_module.so"

# The engine allocates by jemalloc, whose functions the sanitizer replaces only where they are in a library, as in Debian's Redis.
engine=$(command -v "${TALLYSTONE_REDIS_SERVER:-redis-server}")
wrapper="$CARGO_TARGET_DIR/sanitized/redis-server"
# Tests of a failing disk preload another library, too.
printf '#!/bin/sh\nLD_PRELOAD="%s${LD_PRELOAD:+:$LD_PRELOAD}" ASAN_OPTIONS=detect_leaks=0 exec %s "$@"\n' "$runtime" "$engine" >"$wrapper"
chmod +x "$wrapper"

tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(
  compact::fuzz::w1_fuzzed_commands_on_redis compact::model::w1_random_commands_equal_a_map_on_redis
  compact::model::w3_random_commands_equal_a_map_while_tables_are_cold
  compact::cold compact::commands compact::crash compact::damage compact::engine compact::full_disk compact::replica_disks compact::limits
  compact::meddler compact::packed compact::pieces compact::replicas compact::snapshots compact::tokens compact::waits
)
# Valkey loads modules in a way (RTLD_DEEPBIND) that a sanitizer refuses, so the tests of both engines run on Redis.
TALLYSTONE_COMPACT_MODULE="$module" TALLYSTONE_REDIS_SERVER="$wrapper" TALLYSTONE_VALKEY_SERVER="$wrapper" \
  cargo test --profile checked --locked --workspace --test suite -- "${tests[@]}"
