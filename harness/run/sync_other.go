//go:build !unix

package run

// syncFolder does nothing here: a folder is not a file that could be synced.
func syncFolder(string) error { return nil }
