// Command tailnet is a coordination server of Tailscale's own, with a relay: that of its
// integration tests, for one tailnet that is kept in memory. Tests of ortet cluster have a real
// tailscaled log in to it.
//
//	tailnet -listen :8080 -host 10.83.0.2 -control 127.0.0.1:8081
//
// -host is the address by which machines reach it. What an admin of the tailnet does, and what
// goes wrong, is a POST to -control:
//
//	/key?key=KEY    logins need that key; without key= none
//	/away?away=1    nodes do not reach the coordination server; the relay goes on
//	/expire?name=N  the node key of the node of that name has ended
//	/forbid?to=N    the policy lets nobody connect to that node; with allow=1 everybody again
//
// GET /nodes there has the nodes in JSON.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"tailscale.com/derp/derpserver"
	"tailscale.com/net/stun"
	"tailscale.com/tailcfg"
	"tailscale.com/tstest/integration/testcontrol"
	"tailscale.com/types/key"
)

const domain = "tail1.example"

func main() {
	listen := flag.String("listen", "", "`ADDRESS` for nodes")
	host := flag.String("host", "", "`IP` by which nodes reach it")
	control := flag.String("control", "", "`ADDRESS` of the admin")
	flag.Parse()
	if err := serve(*listen, *host, *control); err != nil {
		log.Fatal(err)
	}
}

func serve(listen, host, control string) error {
	nodes, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	t := &tailnet{expired: map[key.NodePublic]bool{}, open: map[net.Conn]bool{}, Listener: nodes}
	t.DERPMap, err = relay(host)
	if err != nil {
		return err
	}
	t.MagicDNSDomain, t.DNSConfig = domain, &tailcfg.DNSConfig{}
	t.TagOwners = map[string][]string{} // nodes get the tags that they ask for
	t.AllOnline = true
	t.ExplicitBaseURL = fmt.Sprintf("http://%s:%d", host, nodes.Addr().(*net.TCPAddr).Port)
	t.HoldMapRequest = func(r *tailcfg.MapRequest) func() { t.tidy(r.NodeKey); return nil }
	// Tailscale's server panics at a path that it does not know.
	paths := http.NewServeMux()
	paths.Handle("/key", &t.Server)
	paths.Handle("/ts2021", &t.Server)
	paths.Handle("/generate_204", &t.Server)
	errs := make(chan error, 2)
	for on, handler := range map[net.Listener]http.Handler{t: paths, nil: t.admin()} {
		go func() {
			server := &http.Server{Addr: control, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
			if on != nil {
				errs <- server.Serve(on)
			} else {
				errs <- server.ListenAndServe()
			}
		}()
	}
	return <-errs
}

// relay is a DERP server with STUN.
func relay(host string) (*tailcfg.DERPMap, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	address := net.ParseIP(host)
	certificate := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{address}, NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, certificate, certificate, private.Public(), private)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: address})
	if err != nil {
		return nil, err
	}
	go func() {
		for b := make([]byte, 64<<10); ; {
			n, from, err := udp.ReadFromUDPAddrPort(b)
			if err != nil {
				log.Fatal(err)
			}
			if id, err := stun.ParseBindingRequest(b[:n]); err == nil {
				seen := netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
				_, _ = udp.WriteToUDPAddrPort(stun.Response(id, seen), from) // as packets are lost
			}
		}
	}()
	d := derpserver.New(key.NewNode(), func(string, ...any) {})
	server := &http.Server{
		Handler: derpserver.Handler(d), ReadHeaderTimeout: 10 * time.Second,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // a relay is not HTTP/2
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}},
	}
	go func() { log.Fatal(server.ServeTLS(l, "", "")) }()
	node := &tailcfg.DERPNode{
		Name: "1", RegionID: 1, HostName: host, IPv4: host, IPv6: "none", STUNPort: udp.LocalAddr().(*net.UDPAddr).Port,
		DERPPort: l.Addr().(*net.TCPAddr).Port, InsecureForTests: true, STUNTestIP: host,
	}
	region := &tailcfg.DERPRegion{RegionID: 1, RegionCode: "lab", RegionName: "lab", Nodes: []*tailcfg.DERPNode{node}}
	return &tailcfg.DERPMap{Regions: map[int]*tailcfg.DERPRegion{1: region}}, nil
}

// A tailnet is also the listener for its nodes, which an admin closes for a while.
type tailnet struct {
	testcontrol.Server
	net.Listener
	mu      sync.Mutex
	expired map[key.NodePublic]bool
	away    bool
	open    map[net.Conn]bool
}

// Accept returns the next connection. While the server is away it closes each.
func (t *tailnet) Accept() (net.Conn, error) {
	for {
		c, err := t.Listener.Accept()
		if err != nil {
			return nil, err
		}
		t.mu.Lock()
		away := t.away
		t.open[c] = true
		t.mu.Unlock()
		if !away {
			return c, nil
		}
		_ = c.Close()
	}
}

// tidy does for a node that asks what Tailscale's own service does and its test's server does
// not: a name that is taken gets a number, a new node key has the former one's place, and it
// has not ended.
func (t *tailnet) tidy(asks key.NodePublic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.Node(asks)
	if n == nil {
		return
	}
	before := n.Name
	if !t.expired[asks] && !n.KeyExpiry.IsZero() {
		n.KeyExpiry = time.Time{}
		before = ""
	}
	for _, other := range t.AllNodes() {
		switch {
		case other.Key == asks:
		case other.ID == n.ID:
			other.ID += 1000
			other.StableID, other.Name = "former-"+other.StableID, "former-"+other.Name
			other.Addresses, other.AllowedIPs = nil, nil
			t.UpdateNode(other)
		case other.ID < n.ID && other.Name == n.Name:
			first, rest, _ := strings.Cut(n.Name, ".")
			n.Name = first + "-1." + rest
		}
	}
	if n.Name != before {
		t.UpdateNode(n)
	}
}

// named finds a node by its name, or answers with 404.
func (t *tailnet) named(w http.ResponseWriter, name string) *tailcfg.Node {
	for _, n := range t.AllNodes() {
		if n.Name == name+"."+domain+"." {
			return n
		}
	}
	http.Error(w, "no such node", http.StatusNotFound)
	return nil
}

func (t *tailnet) admin() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST /key", func(_ http.ResponseWriter, r *http.Request) { t.RequireAuthKey = r.FormValue("key") })
	m.HandleFunc("POST /away", func(_ http.ResponseWriter, r *http.Request) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.away = r.FormValue("away") != ""
		for c := range t.open {
			if t.away {
				_ = c.Close()
			}
		}
		clear(t.open)
	})
	m.HandleFunc("POST /expire", func(w http.ResponseWriter, r *http.Request) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if n := t.named(w, r.FormValue("name")); n != nil {
			t.expired[n.Key] = true
			n.KeyExpiry = time.Now().Add(-time.Minute)
			t.UpdateNode(n)
		}
	})
	m.HandleFunc("POST /forbid", func(w http.ResponseWriter, r *http.Request) {
		if n := t.named(w, r.FormValue("to")); n != nil {
			for _, from := range t.AllNodes() {
				t.SetJailed(n.Key, from.Key, r.FormValue("allow") == "")
			}
		}
	})
	m.HandleFunc("GET /nodes", func(w http.ResponseWriter, _ *http.Request) {
		type node struct {
			Name, Key string
			Addresses []netip.Prefix
			Tags      []string
		}
		var all []node
		for _, n := range t.AllNodes() {
			all = append(all, node{n.Name, n.Key.String(), n.Addresses, n.Tags})
		}
		_ = json.NewEncoder(w).Encode(all) // the client is gone
	})
	return m
}
