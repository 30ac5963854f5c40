package peers

import (
	"strings"
	"testing"
)

// TestTail checks that only the end of a flood is kept, in memory of limited size, in whatever
// pieces it comes.
func TestTail(t *testing.T) {
	for _, size := range []int{1, 100, wordsLimit, 1 << 20} {
		var words tail
		chunk := []byte(strings.Repeat("x", size))
		for written := 0; written < 4<<20; written += size {
			if n, err := words.Write(chunk); n != size || err != nil {
				t.Fatalf("wrote %d of %d bytes, %v", n, size, err)
			}
		}
		_, _ = words.Write([]byte("end"))
		if n := len(words.kept); n != wordsLimit || cap(words.kept) > 4*wordsLimit || !words.cut || !strings.HasSuffix(string(words.kept), "xend") {
			t.Errorf("in chunks of %d: kept %d bytes in a buffer of %d, cut: %v, ending in %q", size, n, cap(words.kept), words.cut, words.kept[max(0, n-4):])
		}
	}
}

// TestCensor checks that words of a command are struck out of a peer's output, also where a cut
// splits one, and that texts are short and harmless.
func TestCensor(t *testing.T) {
	c := newCensor([]string{"TOKEN=token123"}, []string{"peer.mjs", "--key=key456", "-n", "12"})
	for text, want := range map[string]string{
		"bad --key=key456":             "bad ***",
		"key456 is no key of token123": "*** is no key of ***",
		"12 threads, -n":               "12 threads, -n",
		"a\x1b[31mb\nc":                "a [31mb c",
		strings.Repeat("x", 5000):      strings.Repeat("x", textLimit) + "...",
	} {
		if got := c.clean(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	if got := c.lastOf([]byte("y=key456 and more than that, token123"), true); got != "than that, ***" {
		t.Errorf("the end of a text that was cut is %q", got)
	}
	if got := c.quote([]byte("key456\x00" + strings.Repeat("x", 5000))); len(got) > 100 || !strings.HasPrefix(got, `"***\x00xx`) {
		t.Errorf("a quoted text is %s", got)
	}
}
