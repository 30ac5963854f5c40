//go:build !unix

package run

// syncFolder does nothing: on this system a folder is not a file that can be synced.
func syncFolder(string) error { return nil }
