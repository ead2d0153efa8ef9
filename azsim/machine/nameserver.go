//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// nameServer is Azure's, in every virtual network.
	nameServer = "168.63.129.16"
	// domain is that of a virtual network's machines. Azure puts an id of the network's before it.
	domain = "internal.cloudapp.net"
	// slowAnswer is longer than most clients wait for a first answer, and shorter than for all.
	slowAnswer = 4 * time.Second
	maxMessage = 512 // bytes of a message by UDP
	nameTTL    = 10  // seconds, as Azure's
)

// A names answers for the names of machines and their addresses, and knows no other.
type names struct {
	conn   net.PacketConn
	how    string
	lookup func() map[string]netip.Addr // by host name in lower case
	done   sync.WaitGroup
	stop   context.CancelFunc
}

// serveNames answers machines' questions for names, until Close.
func (s *Substrate) serveNames() error {
	if err := ip(context.Background(), s.fabric.namespace(), "addr replace "+nameServer+"/32 dev lo"); err != nil {
		return err
	}
	n := names{how: s.config.NameServer, lookup: s.hosts}
	if err := within(s.fabric.namespace(), func() (err error) {
		n.conn, err = net.ListenPacket("udp4", net.JoinHostPort(nameServer, "53"))
		return err
	}); err != nil {
		return fmt.Errorf("listen for questions of names: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.done.Go(func() { n.serve(ctx) })
	s.closers = append(s.closers, n.close)
	return nil
}

// hosts are the computers that have an address.
func (s *Substrate) hosts() map[string]netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]netip.Addr{}
	for _, c := range s.computers {
		if c.address.IsValid() && c.hostName != "" {
			all[strings.ToLower(c.hostName)] = c.address.Addr()
		}
	}
	return all
}

func (n *names) serve(ctx context.Context) {
	for {
		question := make([]byte, maxMessage)
		size, from, err := n.conn.ReadFrom(question)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n.how == NamesSilent {
			continue
		}
		reply, err := n.answer(question[:size])
		if err != nil {
			continue // it is no question
		}
		n.done.Go(func() {
			if n.how == NamesSlow {
				select {
				case <-ctx.Done():
					return
				case <-time.After(slowAnswer):
				}
			}
			_, _ = n.conn.WriteTo(reply, from) // the client asks again
		})
	}
}

func (n *names) close() error {
	n.stop()
	err := n.conn.Close()
	n.done.Wait()
	return err
}

// answer gives the reply to a message with one question.
func (n *names) answer(message []byte) ([]byte, error) {
	var p dnsmessage.Parser
	header, err := p.Start(message)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	if header.Response {
		return nil, errors.New("it is an answer")
	}
	reply := dnsmessage.Header{ID: header.ID, Response: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true}
	record, known := n.record(q)
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, reply)
	b.EnableCompression()
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if err := b.Question(q); err != nil {
		return nil, err
	}
	if err := b.StartAnswers(); err != nil {
		return nil, err
	}
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: nameTTL}
	switch r := record.(type) {
	case *dnsmessage.AResource:
		err = b.AResource(head, *r)
	case *dnsmessage.PTRResource:
		err = b.PTRResource(head, *r)
	}
	if err != nil {
		return nil, err
	}
	return b.Finish()
}

// record is what is known of a question's name; nil of one that is there with other records.
func (n *names) record(q dnsmessage.Question) (_ dnsmessage.ResourceBody, known bool) {
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	all := n.lookup()
	if host, ours := strings.CutSuffix(name, "."+domain); ours {
		addr, known := all[host]
		if !known || q.Type != dnsmessage.TypeA {
			return nil, known
		}
		return &dnsmessage.AResource{A: addr.As4()}, true
	}
	labels, reverse := strings.CutSuffix(name, ".in-addr.arpa")
	if !reverse {
		return nil, name == domain
	}
	parts := strings.Split(labels, ".")
	slices.Reverse(parts)
	addr, err := netip.ParseAddr(strings.Join(parts, "."))
	if err != nil {
		return nil, false
	}
	for host, a := range all {
		if a != addr {
			continue
		}
		full, err := dnsmessage.NewName(host + "." + domain + ".")
		if err != nil || q.Type != dnsmessage.TypePTR {
			return nil, true
		}
		return &dnsmessage.PTRResource{PTR: full}, true
	}
	return nil, false
}
