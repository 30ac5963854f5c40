// Package group ends a program together with all that it has started: it runs in a process group of
// its own, which is killed as a whole. A process that moves to another group or session escapes.
package group
