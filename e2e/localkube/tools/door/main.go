// Command door lets programs on this machine into network namespaces that have
// no way out: it listens on an address outside and connects from the inside.
//
//	door 127.0.0.1:16443,/run/netns/pdd-a-cp,10.201.0.2:6443 ...
//
// Each argument is one door: where to listen, the namespace, and where to
// connect in there.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

type door struct{ listen, netns, target string }

func main() {
	log.SetFlags(log.LstdFlags)
	if len(os.Args) < 2 {
		log.Fatal("usage: door LISTEN_ADDRESS,NAMESPACE_PATH,TARGET_ADDRESS ...")
	}
	failed := make(chan error)
	for _, argument := range os.Args[1:] {
		d, err := parse(argument)
		if err != nil {
			log.Fatal(err)
		}
		l, err := net.Listen("tcp", d.listen)
		if err != nil {
			log.Fatal(err)
		}
		go func() { failed <- d.serve(l) }()
	}
	log.Print("open")
	log.Fatal(<-failed)
}

func parse(argument string) (door, error) {
	f := strings.Split(argument, ",")
	if len(f) != 3 {
		return door{}, fmt.Errorf("%q is not LISTEN_ADDRESS,NAMESPACE_PATH,TARGET_ADDRESS", argument)
	}
	return door{f[0], f[1], f[2]}, nil
}

func (d door) serve(l net.Listener) error {
	for {
		outside, err := l.Accept()
		if err != nil {
			return err
		}
		go d.pass(outside.(*net.TCPConn))
	}
}

// pass carries one connection until both sides have closed it.
func (d door) pass(outside *net.TCPConn) {
	defer outside.Close()
	inside, err := d.connect()
	if err != nil {
		log.Printf("%s: %v", d.listen, err)
		outside.SetLinger(0) // a refused connection should look like one
		return
	}
	defer inside.Close()
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{outside, inside}, {inside, outside}} {
		both.Add(1)
		go func() {
			defer both.Done()
			if _, err := io.Copy(way[1], way[0]); err != nil && !errors.Is(err, net.ErrClosed) {
				way[0].Close() // broken, so nothing that the other direction brings can be delivered
				way[1].Close()
				return
			}
			way[1].CloseWrite() // the other direction may go on
		}()
	}
	both.Wait()
}

// connect opens a connection from within the namespace. A socket belongs for
// life to the namespace of the thread that made it, so the thread goes there
// and, because it is never unlocked, ends with its goroutine.
func (d door) connect() (*net.TCPConn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		conn, err := func() (net.Conn, error) {
			ns, err := os.Open(d.netns)
			if err != nil {
				return nil, err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return nil, fmt.Errorf("%s: %w", d.netns, err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return (&net.Dialer{}).DialContext(ctx, "tcp", d.target)
		}()
		done <- result{conn, err}
	}()
	r := <-done
	if r.err != nil {
		return nil, r.err
	}
	return r.conn.(*net.TCPConn), nil
}
