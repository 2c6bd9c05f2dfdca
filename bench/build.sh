#!/usr/bin/env bash
# bench/build: how long a newcomer and a developer wait: the demo, the tests from nothing, the tests after one changed file
#   bench/build.sh [--machine] [demo|test|FILE]...
# Works on a fresh clone in a folder of its own, without the compiler cache. With --machine also the machine is fresh: a Debian
# made by debootstrap (root alone), so that the packages count too. Prints each time beside its bar (CONTRIBUTING.md). With
# names only those rows: a FILE such as base/text is changed after the tests from nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

machine='' work=$(mktemp -d)
rows=()
while (($#)); do
  case $1 in
    --machine) machine=$work/machine ;;
    -*) printf 'usage: ./dev bench build [--machine] [demo|test|FILE]...\n' >&2 && exit 2 ;;
    *) rows+=("$1") ;;
  esac
  shift
done
clone=$machine/clone
if [[ ! $machine ]]; then clone=$work/clone; fi

tidy_up() {
  if [[ $machine ]]; then umount -l "$machine"/{proc,dev,sys,run} 2>/dev/null || true; fi
  rm -rf --one-file-system "$work"
}
trap tidy_up EXIT

if [[ $machine ]]; then
  command -v debootstrap >/dev/null || { printf 'build: --machine needs debootstrap\n' >&2 && exit 2; }
  # shellcheck disable=SC2016 # apt's own variables
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -1)
  printf 'build: making a fresh Debian\n' >&2
  debootstrap --variant=minbase --include=git,ca-certificates bookworm "$machine" "$mirror" >"$work/debootstrap.log"
  # How this machine reaches its packages.
  cp -r /etc/apt/. "$machine/etc/apt/"
  cp /etc/resolv.conf /etc/hosts "$machine/etc/"
  for folder in proc dev sys; do mount --rbind "/$folder" "$machine/$folder" && mount --make-rslave "$machine/$folder"; done
  mount -t tmpfs tmpfs "$machine/run"  # where tests keep network namespaces
fi
git clone -q . "$clone"

# Runs a command in the clone; the end of its output is shown when it fails.
inside() {
  local log=$work/log
  if [[ $machine ]]; then
    chroot "$machine" env CCACHE_DISABLE=1 bash -c "cd /clone && $1" >"$log" 2>&1 </dev/null
  else
    (cd "$clone" && CCACHE_DISABLE=1 bash -c "$1") >"$log" 2>&1 </dev/null
  fi || { tail -200 "$log" >&2 && printf 'build: failed: %s\n' "$1" >&2 && return 1; }
}

held=true tested=''
# measure WHAT BAR_SECONDS COMMAND
measure() {
  local begin=$EPOCHREALTIME seconds verdict=holds failed=''
  inside "$3" || failed=true
  seconds=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.0f", b - a}')
  if ((seconds > $2)); then verdict=MISSED held=''; fi
  if [[ $failed ]]; then verdict=FAILED held=''; fi
  printf '%-66s %5d s   bar %5d s   %s\n' "$1" "$seconds" "$2" "$verdict"
}

# A change that alters what is compiled: one more function at the end.
change() {
  printf '\nnamespace tutti {\nint changed_by_the_benchmark_%d() { return 1; }\n}  // namespace tutti\n' "$RANDOM" >>"$clone/$1"
}

printf '%s cores, %s\n' "$(nproc)" "${machine:+packages included}"
if ((${#rows[@]} == 0)); then rows=(demo test learn/tokenizer/merges control/cluster/step net/http/server cli/jobs base/text); fi
for row in "${rows[@]}"; do
  case $row in
    demo) measure './dev demo from nothing' 480 './dev demo' && continue ;;
    test) measure './dev test from nothing' 1500 './dev test' && tested=true && continue ;;
  esac
  if [[ ! $tested ]]; then inside './dev test' && tested=true; fi
  file=$row
  change "src/$file.cpp"
  measure "./dev test after a change in src/$file.cpp" 60 './dev test'
done
[[ $held ]]
