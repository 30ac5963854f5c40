#!/usr/bin/env bash
# How near are the kernels to this machine's limit? Takes rounds of sweeps into OUT and prints which
# floors of .ci/measure/floors/table.go they meet. Each sample waits until no other thread runs on
# its core. Interrupted or run again, it goes on where it stopped; a budget is for one sitting.
#
#	.ci/measure/floors.sh OUT [ROUNDS [SET...]]
#
# Three rounds of all sets take hours. Fewer sets, or a quiet machine, take less. The sets are
# forward long odd dims wide layouts data threads linear decoding shared.
set -euo pipefail
out=$(realpath -m "${1:?usage: .ci/measure/floors.sh OUT [ROUNDS [SET...]]}") rounds=${2:-3}
cd "$(dirname "$0")/../.."
shift $(($# < 2 ? $# : 2))
sets=${*:-forward long odd dims wide layouts data threads linear decoding shared}
mkdir -p "$out"
go build -o "$out/benchrun" ./cmd/benchrun
isas=$("$out/benchrun" list | awk '$2 == "yes" && ($1 == "avx2" || $1 == "avx512") { printf "%s%s", sep, $1; sep = "," }')
if [ -z "$isas" ]; then
	echo "floors are for AVX2 and AVX-512, and this CPU has neither" >&2
	exit 1
fi

# take ROUND NAME BUDGET FLAGS... is one sweep, or the rest of one.
take() {
	local dir=$out/$1/$2 budget=$3
	shift 3
	if [ -s "$dir/journal.jsonl" ]; then
		set -- --resume
	else
		set -- --isa "$isas" --accepted 31 "$@"
	fi
	"$out/benchrun" sweep "$@" --budget "$budget" -o "$dir" || echo "$dir: not all of it was measured" >&2
}

set_forward() {
	take "$1" a-forward64 10m --kernel flash --mask full,causal --seq 512,1024,2048,4096 --heads 8 --dim 64
	take "$1" b-forward128 10m --kernel flash --mask full,causal --seq 512,1024,2048,4096 --heads 4 --dim 128
}
set_long() {
	take "$1" c-long64 10m --kernel flash --mask full,causal --seq 8192 --heads 8 --dim 64
	take "$1" d-long128 10m --kernel flash --mask full,causal --seq 8192 --heads 4 --dim 128
}
set_odd() { take "$1" e-odd 10m --kernel flash --mask full --seq 2047,2048,2049,4093,4096 --heads 8 --dim 64; }
set_dims() { take "$1" f-dims 5m --kernel flash --mask full --seq 2048 --heads 8 --dim 40,64,80,96,112; }
set_wide() { take "$1" g-wide 5m --kernel flash --mask full --seq 2048 --heads 4 --dim 128,256; }
set_layouts() { take "$1" h-layouts 5m --kernel flash --mask full --seq 2048 --heads 8 --dim 64 --layout bhsd,bshd,packed; }
set_data() { take "$1" i-data 5m --kernel flash --mask full --seq 2048 --heads 8 --dim 64 --data normal,std30,rising; }
set_threads() { take "$1" j-threads 10m --kernel flash --mask full --seq 4096 --heads 8 --dim 64 --threads 1,2; }
set_linear() { take "$1" k-linear 5m --kernel linear --mask full,causal --seq 8192 --heads 8 --dim 64; }
set_decoding() { take "$1" l-decoding 15m --kernel flash --mask full --seq 1 --seq-kv 32768,131072 --heads 8 --dim 64,128; }
set_shared() { take "$1" m-shared 15m --kernel flash --mask full --seq 1 --seq-kv 131072 --heads 8 --kv-heads 1,8 --dim 128; }

trap 'echo "to go on: the same command again" >&2; exit 130' INT TERM
for round in $(seq "$rounds"); do
	for s in $sets; do
		"set_$s" "$round"
	done
done
go run ./.ci/measure/floors "$out"/[0-9]*
