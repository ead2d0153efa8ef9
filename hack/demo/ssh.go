package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// An sshServer is sshd of a server that runs no command: it answers those that ortet
// cluster sends.
type sshServer struct {
	key     ssh.Signer // of the host
	login   atomic.Pointer[login]
	answers map[string][]byte // by the beginning of a command
}

// A login is who may log in.
type login struct {
	user string
	keys []string // lines of an authorized_keys file
}

func newSSHServer(answers map[string][]byte) (*sshServer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ssh.NewSignerFromKey(private)
	return &sshServer{key: key, answers: answers}, err
}

// hostKey is the line by which clients know the server.
func (s *sshServer) hostKey() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.key.PublicKey())))
}

// serve serves until the listener is closed.
func (s *sshServer) serve(listener net.Listener) {
	config := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		l := s.login.Load()
		for _, line := range l.keys {
			known, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
			if err == nil && c.User() == l.user && bytes.Equal(known.Marshal(), key.Marshal()) {
				return &ssh.Permissions{}, nil
			}
		}
		return nil, errors.New("key is not the cluster's")
	}}
	config.AddHostKey(s.key)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute)) // no command takes as long
			_, channels, requests, err := ssh.NewServerConn(conn, config)
			if err != nil {
				return // the client says why
			}
			go ssh.DiscardRequests(requests)
			for c := range channels {
				if c.ChannelType() != "session" {
					_ = c.Reject(ssh.UnknownChannelType, "the playground's server forwards no ports")
					continue
				}
				if channel, requests, err := c.Accept(); err == nil {
					s.session(channel, requests)
				}
			}
		}()
	}
}

// session answers the one command of a session.
func (s *sshServer) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	for r := range requests {
		if r.Type != "exec" && r.Type != "shell" {
			_ = r.Reply(r.Type == "pty-req", nil)
			continue
		}
		_ = r.Reply(true, nil)
		var command struct{ Text string }
		_ = ssh.Unmarshal(r.Payload, &command) // a shell has none
		status := uint32(127)
		for prefix, answer := range s.answers {
			if strings.HasPrefix(command.Text, prefix) {
				_, _ = channel.Write(answer)
				status = 0
			}
		}
		if status != 0 {
			_, _ = io.WriteString(channel.Stderr(), fmt.Sprintf("the playground's server runs no commands: %q\r\n", command.Text))
		}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
		return
	}
}
