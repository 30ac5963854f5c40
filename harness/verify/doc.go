// Package verify checks kernels against the definition: it runs cases on them, compares the answers
// with package oracle, and reports the worst error of each kernel in each family of cases.
//
// A Finding is the result of one case on one kernel. Try and TryOutside find it here. A Worker does
// so where a crash is a finding, too; Cases and Outside run whole lists of cases through a Worker.
//
// Claims must be exact. A kernel accepts a problem if it accepts each of its abilities alone, and
// refuses it otherwise (attn.ErrUnsupported).
package verify
