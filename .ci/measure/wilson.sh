# Sourced by gates.sh and rates.sh.

# wilson K N prints Wilson's 95 % interval of K in N, in percent.
wilson() {
	awk -v k="$1" -v n="$2" 'BEGIN {
		z = 1.96; p = k / n; d = 1 + z * z / n; m = (p + z * z / (2 * n)) / d; h = z / d * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
		lo = m - h; if (lo < 0) lo = 0
		printf "%.1f to %.1f %%", 100 * lo, 100 * (m + h) }'
}
