#!/usr/bin/env bash
# bench/jvm/fetch.sh has Maven gather the libraries of each profile of pom.xml in target/NAME/, and compiles the source that drives
# the system into target/NAME/classes. It takes mvn and JDK 17. What is there already stays.
set -euo pipefail
cd "$(dirname "$0")"
for system in rocketmq:RocketMQ artemis:Artemis redisson:Redisson quartz:Quartz dbscheduler:DbScheduler jobrunr:JobRunr; do
  name=${system%:*} source=${system#*:} part=target/$name.part
  if [[ ! -d target/$name ]]; then
    rm -rf "$part"
    timeout 900 mvn --batch-mode --quiet -P "$name" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/$part"
    mv "$part" "target/$name"
  fi
  javac -nowarn -cp "target/$name/*" -sourcepath src -d "target/$name/classes" "src/$source.java"
done
