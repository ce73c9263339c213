#!/usr/bin/env bash
# What the tests of `./test --containers` need: podman, docker-compose, and the images of Debian, Redis, Kafka and
# Elasticsearch. Where no registry answers, images with the same names are made from Debian's packages and from what
# scripts/services.sh installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

have docker-compose || apt_install docker-compose
# The names of containers resolve by one of the plugins, as podman has chosen its network.
{ have podman && have runc && have catatonit && have iptables; } ||
  apt_install podman runc catatonit iptables netavark aardvark-dns golang-github-containernetworking-plugin-dnsname
# In a virtual machine without systemd only runc starts, and only within the limits of this shell.
if [ -n "${CONTAINERS_CONF:-}" ]; then
  mkdir -p "$(dirname "$CONTAINERS_CONF")"
  cat >"$CONTAINERS_CONF" <<END
[engine]
runtime = "runc"
[containers]
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=4096:4096"]
END
fi
has_image() { podman image exists "$1"; }
pull() { timeout 300 podman pull --quiet "$1" >/dev/null 2>&1; }

aside=$(mktemp -d)
trap 'rm -rf "$aside"' EXIT
base=docker.io/library/debian:bookworm-slim
if ! has_image "$base" && ! pull "$base"; then
  have mmdebstrap || apt_install mmdebstrap
  # The sources of this machine reach a mirror.
  mapfile -t sources < <(find /etc/apt/sources.list.d -name '*.sources')
  mmdebstrap --variant=minbase --include=ca-certificates,libssl3,redis-server bookworm "$aside/root.tar" "${sources[@]}"
  # An archive has no settings, so these are as in the image of the registry.
  podman import --quiet --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' --change 'CMD ["bash"]' \
    "$aside/root.tar" "$base"
fi

redis=docker.io/library/redis:7
if ! has_image $redis && ! pull $redis; then
  podman build --quiet --tag $redis - <<END
FROM $base
RUN command -v redis-server || { apt-get update && apt-get install -y --no-install-recommends redis-server; }
RUN mkdir -p /data
WORKDIR /data
CMD ["redis-server"]
END
fi

# A machine with systemd, and with a Redis as the documents want it.
systemd=localhost/tallystone-systemd
if ! has_image $systemd; then
  podman build --quiet --tag $systemd - <<END
FROM $base
RUN apt-get update && apt-get install -y --no-install-recommends systemd redis-server && rm -rf /var/lib/apt/lists/* \
    && printf 'appendonly yes\nappendfsync always\nsave ""\nmaxmemory-policy noeviction\n' >>/etc/redis/redis.conf
CMD ["/lib/systemd/systemd"]
END
fi

# Builds an image on Java, with a folder of scripts/services.sh and a script that starts the service: NAME FOLDER SCRIPT
java_image() {
  local name=$1 folder=$2 script=$3 java=localhost/tallystone-java
  if ! has_image $java; then
    podman build --quiet --tag $java - <<END
FROM $base
RUN apt-get update && apt-get install -y --no-install-recommends curl openjdk-17-jre-headless && rm -rf /var/lib/apt/lists/*
END
  fi
  cp -r "${TALLYSTONE_SERVICES_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tallystone/services}/$folder" "$aside/service"
  cp "scripts/images/$script" "$aside/start.sh"
  mkdir -p "$aside/tools"
  podman build --quiet --file - --tag "$name" "$aside"
  rm -r "$aside/service" "$aside/start.sh" "$aside/tools"
}

kafka=docker.io/apache/kafka:4.1.0
if ! has_image $kafka && ! pull $kafka; then
  # shellcheck source=scripts/services.sh
  source scripts/services.sh
  # The image has the tools of Kafka's command line, which this machine does not need.
  project "<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.1.0</version></dependency>" \
    >"$aside/pom.xml"
  maven "$aside/pom.xml" copy-dependencies -DincludeScope=runtime -DoutputDirectory="$aside/tools"
  java_image $kafka kafka-4.1.0 kafka.sh <<'END'
FROM localhost/tallystone-java
RUN useradd --uid 1000 --create-home --home-dir /var/lib/kafka appuser && mkdir /var/lib/kafka/data \
    && chown appuser: /var/lib/kafka/data
COPY service /opt/kafka
COPY tools /opt/kafka/libs
RUN mkdir /opt/kafka/bin && cd /opt/kafka/bin \
    && tool() { printf '#!/bin/sh\nexec java -cp "/opt/kafka/libs/*" org.apache.kafka.tools.%s "$@"\n' "$2" >"$1" && chmod 755 "$1"; } \
    && tool kafka-topics.sh TopicCommand && tool kafka-console-producer.sh ConsoleProducer
COPY start.sh /start.sh
USER appuser
EXPOSE 9092
ENTRYPOINT ["/start.sh"]
END
fi

elasticsearch=docker.elastic.co/elasticsearch/elasticsearch:8.19.21
if ! has_image $elasticsearch && ! pull $elasticsearch; then
  scripts/services.sh
  java_image $elasticsearch elasticsearch-8.19.21 elasticsearch.sh <<'END'
FROM localhost/tallystone-java
RUN useradd --uid 1000 --no-create-home --home-dir /usr/share/elasticsearch elasticsearch
COPY --chown=elasticsearch:elasticsearch service /usr/share/elasticsearch
COPY start.sh /start.sh
USER elasticsearch
WORKDIR /usr/share/elasticsearch
RUN echo 'network.host: 0.0.0.0' >>config/elasticsearch.yml && mkdir -p data
EXPOSE 9200
ENTRYPOINT ["/start.sh"]
END
fi
