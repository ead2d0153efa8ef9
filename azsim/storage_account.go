package azsim

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	storageAccountType = "Microsoft.Storage/storageAccounts"
	shareType          = storageAccountType + "/fileServices/shares"
	// storageSuffix is what the names of storage endpoints end with.
	storageSuffix = "azsim.invalid"
)

// A Sharer is a Substrate that serves the file shares of storage accounts.
type Sharer interface {
	// PutShare makes a file share; one that is there stays as it is.
	PutShare(account, share string) error
	// SetKeys says which keys open an account.
	SetKeys(account string, keys []string) error
	// DeleteAccount removes an account with its shares and their data.
	DeleteAccount(account string) error
}

func storageVersions() []string {
	return []string{"2019-04-01", "2019-06-01", "2021-09-01", "2022-09-01", "2023-01-01", "2023-05-01", "2024-01-01"}
}

// An account is what a storage account keeps beside its model.
type account struct{ turns [2]int } // how often each key was made

func storedStorageTypes() []*resourceType {
	v := storageVersions()
	accounts := storedType(storageAccountType, v, &storedRules{
		tracked: true, slow: true, derived: []string{"primaryEndpoints", "primaryLocation", "statusOfPrimary", "creationTime"},
		check: checkAccount, show: showAccount,
		written: func(s *Server, e *entry) {
			if e.extra == nil {
				e.extra = &account{}
				id := e.id.child("fileServices", "default")
				t := s.types[strings.ToLower(storageAccountType+"/fileServices")]
				s.insert(id, t, object{"id": id.String(), "name": "default", "type": t.name, "properties": object{}}, e.since)
			}
		},
		effect: func(s *Server, e *entry) func(context.Context) error { return s.setKeys(e) },
		leave: func(s *Server, e *entry) func(context.Context) error {
			return s.sharing(func(sub Sharer) error { return sub.DeleteAccount(e.id.name()) })
		},
	})
	accounts.actions = map[string]handler{"listkeys": listKeys, "regeneratekey": regenerateKey}
	return []*resourceType{
		accounts,
		storedType(storageAccountType+"/fileServices", v, &storedRules{}),
		storedType(shareType, v, &storedRules{
			derived: []string{"lastModifiedTime"}, check: checkShare,
			effect: func(s *Server, e *entry) func(context.Context) error {
				return s.sharing(func(sub Sharer) error { return sub.PutShare(e.id.names[0], e.id.name()) })
			},
		}),
	}
}

// sharing does something on a Substrate that serves file shares, and nothing on
// another.
func (s *Server) sharing(do func(Sharer) error) func(context.Context) error {
	return func(context.Context) error {
		if sub, ok := s.Substrate.(Sharer); ok {
			return do(sub)
		}
		return nil
	}
}

// setKeys gives the Substrate an account's keys as they are now.
func (s *Server) setKeys(e *entry) func(context.Context) error {
	keys := s.keysOf(e)
	return s.sharing(func(sub Sharer) error { return sub.SetKeys(e.id.name(), keys) })
}

func (s *Server) keysOf(e *entry) []string {
	x, _ := e.extra.(*account)
	var out []string
	for i, turn := range x.turns {
		sum := sha512.Sum512(s.sign("storage key " + e.key + " " + strconv.Itoa(i) + " " + strconv.Itoa(turn)))
		out = append(out, base64.StdEncoding.EncodeToString(sum[:]))
	}
	return out
}

var accountName = regexp.MustCompile(`^[a-z0-9]{3,24}$`)

// accountRefusal is why an account cannot have a name, nil if it can.
func (s *Server) accountRefusal(name string, self *entry) *armError {
	if !accountName.MatchString(name) {
		return badRequest("AccountNameInvalid", "%s is not a valid storage account name. Storage account name must be between 3 and 24 characters in length and use numbers and lower-case letters only.", name)
	}
	for _, e := range s.ofType(storageAccountType, s.Subscription, "") {
		if e != self && strings.EqualFold(e.id.name(), name) {
			return refuse(http.StatusConflict, "StorageAccountAlreadyExists", "The storage account named %s already exists under the subscription.", name)
		}
	}
	if slices.Contains(s.TakenStorageAccounts, name) {
		return refuse(http.StatusConflict, "StorageAccountAlreadyTaken", "The storage account named %s is already taken.", name)
	}
	return nil
}

func checkAccount(c *call, d *draft) error {
	if refused := c.s.accountRefusal(d.id.name(), d.e); refused != nil {
		return refused
	}
	if text(d.next, "sku", "name") == "" {
		return badRequest("InvalidRequestPropertyValue", "The value 'null' for property 'sku.name' is invalid.")
	}
	if text(d.next, "kind") == "" {
		d.next["kind"] = "Storage"
	}
	d.next["sku"].(object)["tier"] = skuTier(text(d.next, "sku", "name"))
	return nil
}

func showAccount(_ *Server, e *entry, out object) {
	p, ends := out["properties"].(object), object{}
	for _, service := range []string{"blob", "file", "queue", "table"} {
		ends[service] = "https://" + e.id.name() + "." + service + "." + storageSuffix + "/"
	}
	p["primaryEndpoints"], p["primaryLocation"], p["statusOfPrimary"] = ends, out["location"], "available"
	p["creationTime"] = e.since.UTC().Format("2006-01-02T15:04:05.0000000Z")
}

func (c *call) keyList(e *entry) object {
	list := []any{}
	for i, k := range c.s.keysOf(e) {
		list = append(list, object{"creationTime": e.since.UTC().Format("2006-01-02T15:04:05.0000000Z"), "keyName": "key" + strconv.Itoa(i+1), "value": k, "permissions": "FULL"})
	}
	return object{"keys": list}
}

func listKeys(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	return ok(c.keyList(e)), nil
}

func regenerateKey(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	i := slices.Index([]string{"key1", "key2"}, strings.ToLower(text(tree, "keyName")))
	if i < 0 {
		return nil, badRequest("InvalidRequestPropertyValue", "The value '%s' for property 'keyName' is invalid.", text(tree, "keyName"))
	}
	e.extra.(*account).turns[i]++
	out, do := c.keyList(e), c.s.setKeys(e)
	return &reply{later: func(ctx context.Context) (*reply, error) { return ok(out), do(ctx) }}, nil
}

func checkNameAvailability(c *call) (*reply, error) {
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	refused := c.s.accountRefusal(text(tree, "name"), nil)
	if refused == nil {
		return ok(object{"nameAvailable": true}), nil
	}
	reason := "AlreadyExists"
	if refused.status == http.StatusBadRequest {
		reason = "AccountNameInvalid"
	}
	return ok(object{"nameAvailable": false, "reason": reason, "message": refused.message}), nil
}

var shareName = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])+$`)

func checkShare(_ *call, d *draft) error {
	if name := d.id.name(); len(name) < 3 || len(name) > 63 || !shareName.MatchString(name) {
		return badRequest("InvalidResourceName", "The specifed resource name contains invalid characters: '%s'.", name) //nolint:misspell // as Azure spells it
	}
	p := d.properties()
	if p["shareQuota"] == nil {
		p["shareQuota"] = 5120
	}
	if p["enabledProtocols"] == nil {
		p["enabledProtocols"] = "SMB"
	}
	return nil
}
