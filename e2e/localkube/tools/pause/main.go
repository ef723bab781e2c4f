// Command pause is the first process of a pod's sandbox: it does nothing but
// collect orphaned children until it is told to leave.
package main

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGCHLD)
	for s := range signals {
		if s != unix.SIGCHLD {
			return
		}
		for {
			if child, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil || child <= 0 {
				break
			}
		}
	}
}
