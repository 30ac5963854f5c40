#!/usr/bin/env bash
# How often is benchrun ab wrong on this machine? Runs it RUNS times on the same code, and as often
# on code that is 3 and 5 % slower. Prints a table with Wilson's 95 % intervals. With NEIGHBOURS it
# runs the same code alone, while as many processes keep a CPU busy each: the first CPUs, since
# samples on one thread are taken on the last. Each verdict goes to standard error at once.
#
#	.ci/measure/rates.sh [RUNS [NEIGHBOURS]] > table.md
set -euo pipefail
cd "$(dirname "$0")/../.."
. .ci/measure/wilson.sh
runs=${1:-200} neighbours=${2:-0}
work=$(mktemp -d)
busy=()
trap 'for p in "${busy[@]:-}"; do [ -z "$p" ] || kill "$p" 2>/dev/null || true; done; rm -rf "$work"' EXIT
go build -trimpath -tags sabotage -o "$work/benchrun" ./cmd/benchrun
for cpu in $(seq 0 $((neighbours - 1))); do
	taskset -c "$cpu" bash -c 'while :; do :; done' &
	busy+=($!)
done
export XDG_CACHE_HOME=$work/cache
"$work/benchrun" machine >"$work/machine"
isa=$("$work/benchrun" list | awk '$2 == "yes" { last = $1 } END { print last }')

cpu() { sed -n "s/^$1  *//p" "$work/machine"; }
echo "$(cpu cpu), $(cpu cpus) CPUs, $neighbours busy neighbours; flash/$isa, causal, seq 256, dim 64; $(git rev-parse --short HEAD)"
echo
echo "| head | runs | worse | 95 % interval | better | same | undecided | failed |"
echo "|---|---|---|---|---|---|---|---|"
heads=(flash slow3 slow5)
if [ "$neighbours" != 0 ]; then heads=(flash); fi
for head in "${heads[@]}"; do
	worse=0 better=0 same=0 unsure=0 failed=0
	for n in $(seq "$runs"); do
		code=0
		BENCHRUN_SABOTAGE=${head#flash} "$work/benchrun" ab --base kernel=flash --head "kernel=$head" --kernel flash --isa "$isa" --mask causal --seq 256 --budget 4s --seed "$n" --json \
			-o "$work/run" >"$work/json" 2>"$work/errors" || code=$?
		rm -rf "$work/run"
		if [ "$code" = 4 ]; then # not a verdict on anything
			cat "$work/errors" >&2
			exit 4
		fi
		verdict=$(sed -n 's/^      "verdict": "\(.*\)".*/\1/p' "$work/json") # of the only cell
		echo "$head $n ${verdict:-failed, exit $code}" >&2
		case $verdict in
		worse) worse=$((worse + 1)) ;;
		better) better=$((better + 1)) ;;
		same) same=$((same + 1)) ;;
		undecided) unsure=$((unsure + 1)) ;;
		*) failed=$((failed + 1)) ;;
		esac
	done
	echo "| $head | $runs | $worse | $(wilson "$worse" "$runs") | $better | $same | $unsure | $failed |"
done
