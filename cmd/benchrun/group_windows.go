package main

import (
	"os/exec"
	"strconv"
)

// group does nothing: a process knows its children here.
func group(*exec.Cmd) {}

// terminate ends a command and the processes that it started.
func terminate(cmd *exec.Cmd) error {
	return exec.Command("taskkill", "/T", "/F", "/PID", strconv.Itoa(cmd.Process.Pid)).Run()
}

// kill does nothing more: terminate leaves nothing.
func kill(*exec.Cmd) {}
