package play

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/test/scenario"
)

// ortetClient is whom Ortet logs in as; others own the subscription.
const ortetClient = "0e7e7000-0000-4000-8000-000000000001"

// principals are those who log in, where the world has that reason to refuse.
func principals(refuses string) []azsim.Principal {
	ortet := azsim.Grant{Role: "all that Ortet needs", Actions: []string{"*"}}
	if refuses == "rights" {
		ortet.NotActions = []string{"Microsoft.Compute/virtualMachineScaleSets/write"}
	}
	return []azsim.Principal{
		{Name: "owner", ClientID: azsim.DefaultClientID, Roles: []azsim.Grant{{Role: "Owner"}}},
		{Name: ortetUser, ClientID: ortetClient, Roles: []azsim.Grant{ortet}},
	}
}

// right names what RBAC has to give for a request of that name, as "azure write
// snapshots" and "kube create pods/eviction"; "" where nobody can take it away.
func right(side, name string) string {
	method, path, _ := strings.Cut(name, " ")
	parts := strings.Split(path, "/")
	if strings.HasPrefix(path, "selfsubjectaccessreviews") || strings.HasPrefix(path, "operation of ") || len(parts) > 0 && slices.Contains([]string{"apis", "version"}, parts[0]) {
		return ""
	}
	if side == scenario.Azure {
		verb := map[string]string{http.MethodGet: "read", http.MethodPut: "write", http.MethodPatch: "write", http.MethodDelete: "delete", http.MethodPost: "action"}[method]
		var types []string
		for i := 0; i < len(parts); i += 2 {
			types = append(types, parts[i])
		}
		return side + " " + verb + " " + strings.Join(types, "/")
	}
	if !slices.Contains([]string{"nodes", "namespaces", "pods", "machines"}, parts[0]) && len(parts) > 1 {
		parts = parts[1:] // its namespace
	}
	verb := map[string]string{http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodPost: "create", http.MethodGet: "list"}[method]
	if method == http.MethodGet && len(parts) > 1 {
		verb = "get"
	}
	if len(parts) > 2 {
		return side + " " + verb + " " + parts[0] + "/" + parts[2]
	}
	return side + " " + verb + " " + parts[0]
}

// deny takes the right away that a request needs.
func (w *world) deny(e scenario.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := time.Now().Add(time.Duration(max(1, argument(e, 0))) * time.Second)
	if r := right(e.Side, e.Request); r != "" && w.denied[r].Before(until) {
		w.denied[r] = until
	}
}

// forbidden answers a request that lacks a right.
func (w *world) forbidden(p *process, side, name string) *http.Response {
	r := right(side, name)
	w.mu.Lock()
	until, is := w.denied[r]
	w.mu.Unlock()
	if !is || !time.Now().Before(until) {
		return nil
	}
	p.mu.Lock()
	p.forbidden = true
	p.mu.Unlock()
	if side == scenario.Azure {
		return armAnswer(http.StatusForbidden, "AuthorizationFailed", 0)
	}
	return answer(http.StatusForbidden, fmt.Appendf(nil, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"it is forbidden: User \"ortet\" cannot %s"}`, strings.TrimPrefix(r, side+" ")), 0)
}

// lacked reports whether the right to a request with that in its name was ever taken away.
func (w *world) lacked(name string) bool {
	return slices.ContainsFunc(w.happenedTo(scenario.Deny), func(e scenario.Event) bool { return strings.Contains(e.Request, name) })
}

// checkDenied: who fails for a right that lacks, and for nothing else, says so.
func (w *world) checkDenied(p *process) {
	p.mu.Lock()
	met := p.forbidden
	p.mu.Unlock()
	other := slices.ContainsFunc(w.chooser.Happened(), func(e scenario.Event) bool { return e.What != scenario.Deny })
	code := engine.ExitCode(p.err)
	if !met || other || !w.aloneSince(p) || code != engine.ExitFailed && code != engine.ExitNeedsPerson || len(w.expected(p.ask)) > 0 {
		return
	}
	text := p.err.Error()
	if !slices.ContainsFunc([]string{"AuthorizationFailed", "is forbidden"}, func(s string) bool { return strings.Contains(text, s) }) {
		w.broken("%s lacked a right and ends with exit %d, and does not say so: %v", p.name, code, p.err)
	}
}
