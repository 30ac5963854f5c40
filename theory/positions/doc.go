// Package positions is how attention comes to know where its rows stand. Without any of it, the
// order of the keys is lost: permuting keys together with their values leaves every output as it
// is, and permuting queries permutes the outputs (which is equivariance, not the invariance that
// the lesson says: E-11).
//
// Everything is float64 and made to be read; the same terms in float32 are those of package attn,
// and what attn has already (ALiBiSlopes, T5Bucket, the masks) is used from there and not written
// again.
//
//	sinusoid   PE(pos, 2i) = sin(pos w_i), PE(pos, 2i+1) = cos(pos w_i), w_i = base^(-2i/d), added to the content of a row.
//	           PE(pos+k) = T_k PE(pos), T_k orthogonal and the same for every pos; PE(m).PE(n) = sum_i cos(w_i (m-n))
//	rotation   R_m turns pair c of a row by m w_c. (R_m q).(R_n k) = q.(R_(n-m) k), and R_m^-1 = R_m^T = R_-m
//	bias       s_ij += b(j - pos_i): a number by distance alone. ALiBi has b(x) = -slope |x|, T5 a learned number for each bucket of distances
//	table      s_ij += scale q_i.r_(j-i): a learned row by distance. Transformer-XL has two learned queries besides, which ask for all rows alike
//
// # Conventions
//
// They are those of package attn. Key j stands at j. The last of n_q queries stands on the last of
// n_k keys, so query i stands at pos_i = n_k-n_q+i. A distance is j - pos_i: negative for keys that
// came before. In the documents, keys run from 1 to i and a bias of query i counts down to 0 at its
// own key; the lesson counts the wrong way (E-02), which would favour the oldest key.
//
// A pair of a rotation is elements 2c and 2c+1, or, with Halves, c and c+n, as in attn.Rope.
// Frequencies are stated by neither the lesson's text (E-35) nor its listing for odd d (E-34): here
// an odd encoding has one more sine than it has cosines, and an odd element of a rotation stays as
// it is.
package positions
