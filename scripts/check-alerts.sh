#!/usr/bin/env bash
# Checks the alerts of Prometheus, runs their tests, and parses the queries of the dashboards with `promtool`, which comes from Debian's package `prometheus`: unpacked
# below target/, not installed, so no service starts. Where it is missing and apt-get cannot fetch it, nothing is checked; in CI (the
# variable CI is set) that is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

tools="${CARGO_TARGET_DIR:-target}/promtool"
promtool=$(command -v promtool || true)
unpack() {
  have apt-get && have dpkg-deb && mkdir -p "$tools" && (
    cd "$tools" &&
      # The package lists may be absent or old: fetch them only if the download fails without.
      { apt-get download prometheus >/dev/null 2>&1 || { apt_update >/dev/null 2>&1 && apt-get download prometheus >&2; }; } &&
      dpkg-deb --fsys-tarfile prometheus_*.deb | tar --extract --file - ./usr/bin/promtool &&
      rm prometheus_*.deb
  )
}
if [ -z "$promtool" ]; then
  promtool="$tools/usr/bin/promtool"
  if ! [ -x "$promtool" ] && ! unpack; then
    say "promtool is missing (Debian's package prometheus): the alerts and the dashboards are not checked."
    [ -z "${CI:-}" ] || exit 1
    exit 0
  fi
fi
"$promtool" check rules deploy/prometheus/alerts.yml
"$promtool" test rules deploy/prometheus/alerts_test.yml
# The queries of the dashboards as rules, with values in the place of Grafana's variables. A string of JSON is one of YAML, too.
queries=$(mktemp --suffix=.yml)
trap 'rm -f "$queries"' EXIT
awk 'BEGIN { print "groups:\n  - name: dashboards\n    rules:" }
     /^ *"expr": / {
       sub(/^ *"expr": /, ""); sub(/,$/, ""); gsub(/\$__rate_interval/, "5m"); gsub(/\$queue/, ".*")
       printf "      - record: dashboards:query_%d\n        expr: %s\n", ++number, $0
     }' deploy/grafana/*.json >"$queries"
if ! "$promtool" check rules "$queries"; then
  say "A query of deploy/grafana is not PromQL; query_N is the Nth \"expr\" of these files:" deploy/grafana/*.json
  exit 1
fi
if [ "$(grep -c 'record:' "$queries")" -ne "$(cat deploy/grafana/*.json | grep -c '"expr":')" ]; then
  say "Not every \"expr\" of deploy/grafana has a separate line: some were not checked."
  exit 1
fi
