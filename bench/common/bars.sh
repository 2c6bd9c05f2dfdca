# shellcheck shell=bash
# The bars of a benchmark that is a script: `bar NAME VALUE 'at most'|'at least' LIMIT` for each, then `end_bars`, which says which
# were missed, or not measured, and ends with 1 if there are any.
missed=()
bar() {
  if [[ ! $2 ]]; then
    missed+=("$1: not measured")
  elif ! awk -v value="$2" -v how="$3" -v limit="$4" 'BEGIN {exit !(how == "at least" ? value + 0 >= limit : value + 0 <= limit)}'; then
    missed+=("$1: $2, and the bar is $3 $4")
  fi
}
end_bars() {
  if ((${#missed[@]} == 0)); then return 0; fi
  printf 'missed: %s\n' "${missed[@]}" >&2
  exit 1
}
