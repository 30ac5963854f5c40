#!/usr/bin/env bash
# How often is benchrun gate wrong on this machine? Judges RUNS sweeps of unchanged code against a
# baseline, and a fifth as many of each fault in one cell (lab/sabotage). It also offers
# baselines of other machines, and baselines that were cut off. Prints a table with Wilson's 95 %
# intervals. What gate printed where it was wrong goes to standard error.
#
#	.ci/measure/gates.sh [RUNS] > table.md
set -euo pipefail
cd "$(dirname "$0")/../.."
. .ci/measure/wilson.sh
runs=${1:-50}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -trimpath -tags sabotage -o "$work/benchrun" ./cmd/benchrun
export XDG_CACHE_HOME=$work/cache
"$work/benchrun" machine >"$work/machine"
isas=$("$work/benchrun" list | awk '$2 == "yes" { print $1 }' | tail -n 2 | paste -sd, -)
faulty="Attention/kernel=flash/isa=${isas##*,}/pass=forward/mask=causal/heads=1/seq=256/dim=64/threads=1"

# sweep [FAULT] makes a run of forty cells, which judge takes.
sweep() {
	rm -rf "$work/run"
	BENCHRUN_SABOTAGE=${1-} "$work/benchrun" sweep --kernel flash --isa "$isas" --mask full,causal --seq 64,128,192,256,384 --dim 32,64 --samples 40 --budget 10m -o "$work/run" \
		>"$work/swept" 2>&1 || { cat "$work/swept" >&2; exit 1; }
}

# judge BASELINE leaves gate's exit code in $code, and the cells that it calls regressed in $named.
judge() {
	code=0
	"$work/benchrun" gate --baseline "$1" "$work/run" >"$work/said" 2>&1 || code=$?
	named=$(sed -n 's/^regressed  *\(Attention[^ ]*\).*/\1/p' "$work/said")
}

# begin CASE and end print a row of the table. tally CODE NAMED counts one verdict of gate; it is
# right with that exit code and those cells.
begin() { row=$1 count=0 passed=0 regressed=0 undecided=0 refused=0 right=0; }
tally() {
	count=$((count + 1))
	case $code in
	0) passed=$((passed + 1)) ;;
	1) regressed=$((regressed + 1)) ;;
	2) undecided=$((undecided + 1)) ;;
	4) refused=$((refused + 1)) ;;
	esac
	if [ "$code" = "$1" ] && [ "$named" = "$2" ]; then
		right=$((right + 1))
	else
		{ echo "$row, exit code $code:"; cat "$work/said"; } >&2
	fi
}
end() { echo "| $row | $count | $passed | $regressed | $undecided | $refused | $right | $(wilson "$right" "$count") |"; }

cpu() { sed -n "s/^$1  *//p" "$work/machine"; }
echo "$(cpu cpu), $(cpu cpus) CPUs; flash, forward, $isas, full and causal, seq 64 to 384, dim 32 and 64, 40 samples; $(git rev-parse --short HEAD)"
echo
echo "| run | runs | passed | regressed | undecided | refused | right | 95 % interval |"
echo "|---|---|---|---|---|---|---|---|"

sweep
"$work/benchrun" gate --update --baseline "$work/baseline" "$work/run" >"$work/said"
begin "unchanged"
for _ in $(seq "$runs"); do
	sweep
	judge "$work/baseline"
	tally 0 ""
done
end
for fault in alloc scratch slow; do
	case $fault in
	alloc) begin "one allocation more in one cell" ;;
	scratch) begin "1 MiB more scratch in one cell" ;;
	slow) begin "a tenth less speed in one cell" ;;
	esac
	for _ in $(seq $(((runs + 4) / 5))); do
		sweep "$fault"
		judge "$work/baseline"
		tally 1 "$faulty"
	done
	end
done

# spoil copies the baseline, so that the copy can be changed.
spoil() {
	rm -rf "$work/spoilt"
	cp -r "$work/baseline" "$work/spoilt"
}
begin "another machine's baseline"
for edit in 's/"cpu": "/&no /' 's/"cpus": /&1/' 's/"isa": \[/&"none", /' 's/"go": "/&no /'; do
	spoil
	sed -i "$edit" "$work/spoilt/run.json"
	judge "$work/spoilt"
	tally 4 ""
done
end
foreign=$(tail -n 1 "$work/said")
begin "a baseline cut off"
size=$(wc -c <"$work/baseline/journal.jsonl")
for n in $(seq "$runs"); do
	spoil
	head -c $((size * n / (runs + 1))) "$work/baseline/journal.jsonl" >"$work/spoilt/journal.jsonl"
	judge "$work/spoilt"
	tally 4 ""
done
end
cut=$(tail -n 1 "$work/said")
echo
echo "Right is to pass unchanged code, to name the cell at fault alone, and to refuse all else (exit code 4), with reasons such as"
echo
printf '    %s\n' "${foreign//$work\//}" "${cut//$work\//}"
