// Package positions holds the ways in which attention learns the positions of its rows. Without
// them, the order of the keys is lost: permuting keys together with their values leaves every
// output unchanged. Permuting queries permutes the outputs, which is equivariance, not the
// invariance that the lesson claims (E-11).
//
// Everything is float64 and written to be read. Package attn computes the same terms in float32;
// ALiBiSlopes, T5Bucket and the masks are used from there.
//
//	sinusoid   PE(pos, 2i) = sin(pos w_i), PE(pos, 2i+1) = cos(pos w_i), w_i = base^(-2i/d); PE
//	           is added to the content of a row. PE(pos+k) = T_k PE(pos), with T_k orthogonal and
//	           independent of pos. PE(m).PE(n) = sum_i cos(w_i (m-n))
//	rotation   R_m turns pair c of a row by m w_c. (R_m q).(R_n k) = q.(R_(n-m) k), and
//	           R_m^-1 = R_m^T = R_-m
//	bias       s_ij += b(j - pos_i), a number that depends on distance alone. ALiBi has b(x) =
//	           -slope |x|, T5 a learned number for each bucket of distances
//	table      s_ij += scale q_i.r_(j-i), a learned row for each distance. Transformer-XL adds
//	           two learned queries, which are shared by all rows
//
// # Conventions
//
// The conventions are those of package attn. Key j is at position j. The last of n_q queries is at
// the position of the last of n_k keys, so query i is at pos_i = n_k-n_q+i. A distance is j -
// pos_i: negative for earlier keys. In the documents, keys run from 1 to i, and a bias of query i
// counts down to 0 at its own key. The lesson counts the wrong way (E-02), which would favour the
// oldest key.
//
// A pair of a rotation is elements 2c and 2c+1, or, with Halves, c and c+n, as in attn.Rope. For
// odd d, neither the lesson's text (E-35) nor its listing (E-34) states the frequencies. Here an
// odd encoding has one sine more than cosines, and a rotation leaves an odd element unchanged.
package positions
