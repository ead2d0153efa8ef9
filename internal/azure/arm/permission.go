package arm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// permissionVersion is the API version of the permissions list; see Azure's
// REST reference, "Permissions - List For Resource".
const permissionVersion = "2022-04-01"

// A permission is what one role assignment gives.
type permission struct {
	Actions    []string `json:"actions"`
	NotActions []string `json:"notActions"`
}

// Denied returns those of the actions that the credentials may not do on the
// scope. An action is allowed if one assignment allows it: notActions take away
// from their own assignment alone, they are no denial.
func (c *Cloud) Denied(ctx context.Context, scope fleet.ResourceID, actions []string) ([]string, error) {
	const op = "list permissions"
	if rest, ok := strings.CutPrefix(string(scope), "/subscriptions/"); !ok || slices.ContainsFunc(strings.Split(rest, "/"), func(s string) bool { return !fleet.ValidName(s) }) {
		return nil, failed(ctx, op, scope, &fleet.Error{Kind: fleet.KindInvalid, Err: fmt.Errorf("%q is no scope", scope)})
	}
	var all []permission
	at := fleet.ResourceID(strings.TrimRight(string(scope), "/") + "/providers/Microsoft.Authorization/permissions")
	if err := list(ctx, c, c.address(at, permissionVersion), func(p *permission) error {
		all = append(all, *p)
		return nil
	}); err != nil {
		return nil, failed(ctx, op, scope, err)
	}
	var denied []string
	for _, a := range actions {
		if !allowed(all, a) {
			denied = append(denied, a)
		}
	}
	return denied, nil
}

func allowed(all []permission, action string) bool {
	for _, p := range all {
		if anyMatches(p.Actions, action) && !anyMatches(p.NotActions, action) {
			return true
		}
	}
	return false
}

func anyMatches(patterns []string, action string) bool {
	for _, p := range patterns {
		if matches(strings.ToLower(p), strings.ToLower(action)) {
			return true
		}
	}
	return false
}

// matches compares with a pattern in which each * stands for any text,
// slashes too.
func matches(pattern, s string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for {
		part, more, again := strings.Cut(rest, "*")
		if !again {
			return strings.HasSuffix(s, rest)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], more
	}
}
