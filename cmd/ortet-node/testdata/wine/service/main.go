//go:build windows

// Command service is a Windows service that fails when it is told to, and what
// installs it and tells it, for the tests of the agent.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

const usage = `service create NAME | start NAME | tell NAME COMMAND | remove NAME | state NAME | serve NAME | hold

create makes a service of this program; tell sends it a command: 200 to 254 has
it end with that code less 200, 199 has its process end without a word, 198 has
it say that it is paused, 197 that it runs again; hold ends with its input.
`

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	switch {
	case len(args) == 1 && args[0] == "hold":
		fmt.Println("holding")
		_, err := io.Copy(io.Discard, os.Stdin)
		return 0, err
	case len(args) == 2 && args[0] == "serve":
		return 0, svc.Run(args[1], service{})
	case len(args) < 2:
		return 64, fmt.Errorf("%s", usage)
	}
	m, err := mgr.Connect()
	if err != nil {
		return 1, err
	}
	defer m.Disconnect()
	if args[0] == "create" {
		program, err := os.Executable()
		if err != nil {
			return 1, err
		}
		s, err := m.CreateService(args[1], program, mgr.Config{StartType: mgr.StartManual}, "serve", args[1])
		if err != nil {
			return 1, err
		}
		return 0, s.Close()
	}
	s, err := m.OpenService(args[1])
	if err != nil {
		return 1, err
	}
	defer s.Close()
	switch args[0] {
	case "start":
		if err := s.Start(); err != nil {
			return 1, err
		}
		return 0, until(s, svc.Running)
	case "tell":
		command, err := strconv.Atoi(args[2])
		if err != nil {
			return 64, err
		}
		// One that ends at once does not answer.
		_, _ = s.Control(svc.Cmd(command))
		want := svc.Stopped
		switch command {
		case 197:
			want = svc.Running
		case 198:
			want = svc.Paused
		}
		return 0, until(s, want)
	case "state":
		q, err := s.Query()
		fmt.Printf("%+v\n", q)
		return 0, err
	case "remove":
		return 0, s.Delete()
	}
	return 64, fmt.Errorf("%s", usage)
}

func until(s *mgr.Service, want svc.State) error {
	for range 500 {
		q, err := s.Query()
		if err != nil {
			return err
		}
		if q.State == want {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("the service did not come to state %d", want)
}

type service struct{}

func (service) Execute(_ []string, requests <-chan svc.ChangeRequest, changes chan<- svc.Status) (bool, uint32) {
	const accepted = svc.AcceptStop | svc.AcceptShutdown
	changes <- svc.Status{State: svc.Running, Accepts: accepted}
	for r := range requests {
		switch {
		case r.Cmd == svc.Interrogate:
			changes <- r.CurrentStatus
		case r.Cmd == svc.Stop || r.Cmd == svc.Shutdown:
			return false, 0
		case r.Cmd >= 200:
			return true, uint32(r.Cmd) - 200
		case r.Cmd == 199:
			os.Exit(3)
		case r.Cmd == 198:
			changes <- svc.Status{State: svc.Paused, Accepts: accepted}
		case r.Cmd == 197:
			changes <- svc.Status{State: svc.Running, Accepts: accepted}
		}
	}
	return false, 0
}
