#!/usr/bin/env bash
# Checks the systemd units with `systemd-analyze`: that systemd understands every line, and that they stay hardened. Where it is missing,
# nothing is checked; in CI (the variable CI is set) that is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

# In tenths, from 0 (what is allowed is hardly more than what the program needs) to 100 (everything). Today each unit has 12.
exposure_max=20

if ! have systemd-analyze; then
  say "systemd-analyze is missing (Debian's package systemd): the units are not checked."
  [ -z "${CI:-}" ] || exit 1
  exit 0
fi
units=$(mktemp -d)
trap 'rm -r "$units"' EXIT
for unit in deploy/systemd/*.service; do
  copy="$units/$(basename "$unit")"
  # The program need not be installed here.
  sed 's#^ExecStart=/usr/local/bin/tallystone #ExecStart=/bin/true #' "$unit" >"$copy"
  # It ends with 0 although it warns of lines that it ignores.
  if ! complaints=$(systemd-analyze verify --man=no "$copy" 2>&1) || [ -n "$complaints" ]; then
    say "$unit: $complaints"
    exit 1
  fi
  if ! exposure=$(systemd-analyze security --offline=true --no-pager --threshold=$exposure_max "$copy" 2>&1); then
    say "$unit: $(grep -v "✓" <<<"$exposure")"
    exit 1
  fi
done
say "systemd accepts the units, and they are hardened."
