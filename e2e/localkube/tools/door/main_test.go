package main

import (
	"io"
	"net"
	"testing"
)

// The test's own network namespace stands for the other one. Needs root, as setns does.
func TestDoorPassesBothWaysAndHalfCloses(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		c, err := target.Accept()
		if err != nil {
			return
		}
		asked, _ := io.ReadAll(c) // returns once the client has closed its half
		c.Write(append([]byte("heard "), asked...))
		c.Close()
	}()
	d := door{"127.0.0.1:0", "/proc/self/ns/net", target.Addr().String()}
	listen, err := net.Listen("tcp", d.listen)
	if err != nil {
		t.Fatal(err)
	}
	go d.serve(listen)
	c, err := net.Dial("tcp", listen.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("hello"))
	c.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(c)
	if string(answer) != "heard hello" {
		t.Fatalf("%q", answer)
	}
}

func TestParse(t *testing.T) {
	d, err := parse("127.0.0.1:1,/run/netns/x,10.0.0.1:2")
	if err != nil || d != (door{"127.0.0.1:1", "/run/netns/x", "10.0.0.1:2"}) {
		t.Fatal(d, err)
	}
	for _, bad := range []string{"", "a,b", "a,b,c,d"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
