#!/usr/bin/env bash
# How often is benchrun gate wrong on this machine? Holds so many sweeps of unchanged code against a baseline, and a fifth as many of each fault in one
# of its cells (cmd/benchrun/fault.go), baselines from other machines, and baselines that are cut somewhere; prints a table with 95 % binomial
# intervals (Wilson). What gate said where it was wrong goes to standard error.
#
#	reports/gates.sh [RUNS] > table.md
set -euo pipefail
cd "$(dirname "$0")/.."
. reports/wilson.sh
runs=${1:-50}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for fault in none alloc scratch slow; do # all with one tag: it is part of the fingerprint
	go build -trimpath -tags slow -ldflags "-X main.fault=${fault#none}" -o "$work/$fault" ./cmd/benchrun
done
export XDG_CACHE_HOME=$work/cache
"$work/none" machine >"$work/machine"
isas=$("$work/none" list | awk '$2 == "yes" { print $1 }' | tail -n 2 | paste -sd, -)
faulty="Attention/kernel=flash/isa=${isas##*,}/pass=forward/mask=causal/heads=1/seq=256/dim=64/threads=1"

# sweep BUILD makes the run that is to be judged, of forty cells.
sweep() {
	rm -rf "$work/run"
	"$work/$1" sweep --kernel flash --isa "$isas" --mask full,causal --seq 64,128,192,256,384 --dim 32,64 --samples 40 --budget 10m -o "$work/run" \
		>"$work/swept" 2>&1 || { cat "$work/swept" >&2; exit 1; }
}

# judge BASELINE leaves gate's exit code in $code and the cells that it says regressed in $named.
judge() {
	code=0
	"$work/none" gate --baseline "$1" "$work/run" >"$work/said" 2>&1 || code=$?
	named=$(sed -n 's/^regressed  *\(Attention[^ ]*\).*/\1/p' "$work/said")
}

# begin CASE and end print a row of the table; tally CODE NAMED counts what gate said, which is right with that exit code and those cells.
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

sweep none
"$work/none" gate --update --baseline "$work/baseline" "$work/run" >"$work/said"
begin "unchanged"
for _ in $(seq "$runs"); do
	sweep none
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

# spoil makes a copy of the baseline to do something to.
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
echo "Right is to pass what is unchanged, to name the cell at fault and no other, and to refuse (exit code 4) the rest, with such reasons as"
echo
printf '    %s\n' "${foreign//$work\//}" "${cut//$work\//}"
