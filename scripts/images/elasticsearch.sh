#!/usr/bin/env bash
# Starts Elasticsearch as its image does: a variable with a dot, such as discovery.type, is a setting.
set -euo pipefail
ES_JAVA_HOME=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
export ES_JAVA_HOME
settings=()
while IFS='=' read -r name value; do
  if [[ $name =~ ^[a-z_]+(\.[a-z_]+)+$ ]]; then settings+=("-E$name=$value"); fi
done < <(env)
exec /usr/share/elasticsearch/bin/elasticsearch "${settings[@]}"
