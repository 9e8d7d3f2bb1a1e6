#!/usr/bin/env bash
# scripts/kafka.sh have   tells whether there is a Kafka, and a Java that runs it
# scripts/kafka.sh fetch  sees to it that there is
#
# Brings Kafka 4.1 into the user's cache, out of Maven's repository: no distribution has a package of it. It takes mvn and
# Java 17. Nothing is installed, and nothing started.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.1.1
# internal/testrig/kafkad.go looks here.
libs=${XDG_CACHE_HOME:-$HOME/.cache}/toc/kafka-$version

fail() {
  echo "make deps: $1" >&2
  exit 1
}

has_java() { command -v java >/dev/null && java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])'; }
have() { has_java && [[ -f $libs/kafka_2.13-$version.jar ]]; }

# fetch has Maven gather the server and what it depends on in $work/libs.
fetch() {
  cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>toc</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
POM
  timeout 900 mvn --batch-mode --quiet --file "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/libs"
}

case ${1:-} in
have) have; exit ;;
fetch) ! have || exit 0 ;;
*) fail "usage: scripts/kafka.sh have|fetch" ;;
esac

has_java || fail "Kafka needs Java 17 or newer (java), which is not here"
command -v mvn >/dev/null || fail "Kafka is fetched by Maven (mvn), which is not here"
echo "make deps: fetching Kafka $version into $libs"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(fetch) >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "Kafka $version is not to be had from this machine's Maven repository"; }
# In one step: another may be doing the same.
mkdir -p "${libs%/*}"
mv "$work/libs" "$libs.$$"
mv -T "$libs.$$" "$libs" 2>/dev/null || { have && rm -rf "$libs.$$"; }
