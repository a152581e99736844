#!/usr/bin/env bash
# Rules that the compiler and clippy do not check: the length of files, what a pure crate declares, properties without
# kept failures, and forbidden words. Prints every breach; fails if any.
set -euo pipefail
cd "$(dirname "$0")/.."

max_lines=600
# Unfinished work, debugging leftovers, praise, and paths of one machine. The brackets keep the pattern from matching
# itself.
words='\b(TO[D]O|FIX[M]E|X[X]X)\b|\b([t]odo|[u]nimplemented|[d]bg)!|[s]eamless|[b]lazing|[c]utting.edge|(^|[ "`(=])/([h]ome|[w]ork|[s]hared)/'

failed=0
complain() { echo "$1" >&2; failed=1; }
tracked() { git ls-files -co --exclude-standard -- "$@" | while read -r file; do [ ! -f "$file" ] || echo "$file"; done; }

for file in $(tracked 'crates/*/src/*.rs' | grep -v -e '/tests/' -e '/tests\.rs$'); do
  # Only the part before the tests at the end of the file.
  lines=$(awk '/^#\[cfg\(test\)\]/ { exit } { n++ } END { print n + 0 }' "$file")
  [ "$lines" -le "$max_lines" ] || complain "$file: $lines lines, more than $max_lines"
done

pure=$(scripts/pure --list)
for crate in $pure; do
  grep -qF '#![forbid(unsafe_code)]' "crates/$crate/src/lib.rs" ||
    complain "crates/$crate/src/lib.rs: a pure crate needs #![forbid(unsafe_code)]"
  [ ! -e "crates/$crate/clippy.toml" ] ||
    complain "crates/$crate/clippy.toml: a pure crate has the rules of the top, which forbid hash maps"
done
for lib in $(grep -lF '#![no_std]' crates/*/src/lib.rs); do
  crate=$(basename "${lib%/src/lib.rs}")
  grep -qx "$crate" <<<"$pure" || complain "crates/$crate/Cargo.toml: a crate without std is marked pure"
done

found=$(tracked | grep -v '^Cargo.lock$' | xargs grep -nIE "$words") &&
  complain "Words that have no place here:"$'\n'"$found"
found=$(tracked 'crates/*.rs' | xargs grep -nE 'failure_persistence: *None|RngSeed::Random') &&
  complain "A property forgets its failures, or draws other cases each time:"$'\n'"$found"
# `scripts/unit` runs none, so a block that rustdoc takes for a test must not be there.
found=$(tracked 'crates/*.rs' | xargs awk '/^ *\/\/[\/!] *```/ {
  if (!(FILENAME in open) && /```$/) print FILENAME ":" FNR
  if (FILENAME in open) delete open[FILENAME]; else open[FILENAME] = 1 }')
[ -z "$found" ] || complain "A block of code in documents that says no language (text):"$'\n'"$found"
grep -q '^PROPTEST_RNG_SEED = ' .cargo/config.toml || complain ".cargo/config.toml: properties have no fixed seed"
exit "$failed"
