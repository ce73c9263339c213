#!/usr/bin/env bash
# Starts Kafka as the image apache/kafka does: the variable KAFKA_LOG_RETENTION_MS sets the property log.retention.ms.
set -euo pipefail
properties=/var/lib/kafka/server.properties
while IFS='=' read -r name value; do
  case $name in
    KAFKA_HEAP_OPTS) ;;
    KAFKA_*)
      name=${name#KAFKA_}
      name=${name//_/.}
      echo "${name,,}=$value"
      ;;
  esac
done < <(env) >"$properties"
java=(java -Dlog4j2.level=warn -cp '/opt/kafka/libs/*')
"${java[@]}" kafka.tools.StorageTool format --ignore-formatted -t "${CLUSTER_ID:-dGFsbHlzdG9uZS1sb2NhbA}" -c "$properties"
exec "${java[@]}" "${KAFKA_HEAP_OPTS:--Xmx512m}" kafka.Kafka "$properties"
