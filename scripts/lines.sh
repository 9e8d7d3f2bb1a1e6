#!/usr/bin/env bash
# Prints the product lines of each top folder, and its budget in doc.go. Fails if one has more: a feature comes in with its
# subtraction. Tests, the rigs of tests, benchmarks and examples are no product.
set -euo pipefail
cd "$(dirname "$0")/.."

product() {
  git ls-files '*.go' '*.lua' | grep -v '_test\.go$' |
    grep -vE '^(internal/(soak|testrig|sim|virtual|fakeconsul|transcript|repotest)/|bench/|toctest/|examples/|server/console/e2e/)'
}

product | xargs wc -l | awk -v doc=doc.go '
  BEGIN {
    while ((getline line < doc) > 0)
      if (line ~ /^\/\/\tlines /) { split(line, word, /[ \t]+/); budget[word[3]] = word[4] }
  }
  $2 != "total" { folder = $2; if (!sub(/\/.*/, "", folder)) folder = "."; lines[folder] += $1; sum += $1 }
  END {
    for (folder in lines) {
      note = ""
      if (lines[folder] > budget[folder] + 0) { note = "  over its budget in doc.go"; over = 1 }
      printf("%-12s %6d of %6d%s\n", folder, lines[folder], budget[folder], note) | "sort"
    }
    close("sort")
    print "sum " sum
    exit over
  }'
