// Package group ends a program together with all processes that it has started: the program leads a
// process group of its own, which is signalled as a whole. A process that moves to another group or
// session escapes.
package group
