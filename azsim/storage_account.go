package azsim

import (
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
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

// oldAccountVersions have no shares; the first gives the SKU as properties.accountType.
func oldAccountVersions() []string {
	return []string{accountTypeVersion, "2016-01-01", "2016-05-01", "2016-12-01", "2017-06-01", "2017-10-01", "2018-02-01", "2018-07-01", "2018-11-01"}
}

const accountTypeVersion = "2015-06-15"

func storageVersions() []string {
	return []string{"2019-04-01", "2019-06-01", "2021-09-01", "2022-09-01", "2023-01-01", "2023-05-01", "2024-01-01"}
}

// An account is what a storage account keeps beside its model.
type account struct {
	turns [2]int       // how often each key was made
	made  [2]time.Time // when it was last
}

func storedStorageTypes() []*resourceType {
	v := storageVersions()
	accounts := storedType(storageAccountType, append(oldAccountVersions(), v...), &storedRules{
		tracked: true, slowNew: true,
		derived: []string{"primaryEndpoints", "primaryLocation", "statusOfPrimary", "secondaryEndpoints", "secondaryLocation", "statusOfSecondary",
			"creationTime", "keyCreationTime", "privateEndpointConnections"},
		check: checkAccount, show: showAccount,
		written: func(s *Server, e *entry) {
			if e.extra == nil {
				e.extra = &account{made: [2]time.Time{e.since, e.since}}
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
	if kind := text(d.properties(), "accountType"); kind != "" && c.version == accountTypeVersion {
		d.next["sku"] = object{"name": kind}
	}
	delete(d.properties(), "accountType")
	if text(d.next, "sku", "name") == "" {
		return badRequest("InvalidRequestPropertyValue", "The value 'null' for property 'sku.name' is invalid.")
	}
	if text(d.next, "kind") == "" {
		d.next["kind"] = "Storage"
	}
	d.next["sku"].(object)["tier"] = skuTier(text(d.next, "sku", "name"))
	c.accountDefaults(d)
	return c.checkIdentity(d)
}

// accountDefaults fills in what Azure does, as of the API version of the request that made
// the account: an account keeps them when a newer version reads it. minimumTlsVersion,
// allowBlobPublicAccess and the encryption's keyType come with newer versions.
// Source: recorded answers; of public access the REST reference of Storage Accounts.
func (c *call) accountDefaults(d *draft) {
	now := azureTime(c.now)
	service := func() object { return object{"enabled": true, "keyType": "Account", "lastEnabledTime": now} }
	p := d.properties()
	fillMember(d.next, "tags", object{})
	fillMember(d.next, "properties", object{
		"supportsHttpsTrafficOnly": c.version >= "2019-04-01", "allowBlobPublicAccess": c.version < "2023-01-01", "minimumTlsVersion": "TLS1_0",
		"networkAcls": object{"bypass": "AzureServices", "virtualNetworkRules": []any{}, "ipRules": []any{}, "defaultAction": "Allow"},
		"encryption":  object{"keySource": "Microsoft.Storage"},
	})
	encryption := p["encryption"].(object)
	if old, was := at(d.old, "properties", "encryption", "services").(object); was { // a change keeps the times
		fillMember(encryption, "services", old)
	}
	fillMember(encryption, "services", object{"blob": service(), "file": service()})
	if kind := text(d.next, "kind"); kind == "StorageV2" || kind == "BlobStorage" {
		fillMember(p, "accessTier", "Hot")
	}
	acls, _ := p["networkAcls"].(object)
	acls["bypass"] = spelledBypass(text(acls, "bypass"))
	for _, name := range []string{"virtualNetworkRules", "ipRules"} {
		rules, _ := acls[name].([]any)
		for _, r := range rules {
			rule, _ := r.(object)
			fillMember(rule, "action", "Allow")
			if name == "virtualNetworkRules" {
				rule["state"] = stateSucceeded
			}
		}
	}
}

// spelledBypass spells networkAcls.bypass, a list of flags, as Azure does.
func spelledBypass(bypass string) string {
	var out []string
	for _, flag := range []string{"None", "Logging", "Metrics", "AzureServices"} {
		for given := range strings.SplitSeq(bypass, ",") {
			if strings.EqualFold(strings.TrimSpace(given), flag) {
				out = append(out, flag)
			}
		}
	}
	return strings.Join(out, ", ")
}

// azureTime is a time in the form of storage accounts.
func azureTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.0000000Z") }

// accountServices lists the endpoints of an account's kind (Microsoft's "Storage account
// overview"; recorded answers).
func accountServices(kind, sku string) []string {
	premium := strings.HasPrefix(sku, "Premium")
	switch {
	case kind == "FileStorage":
		return []string{"file"}
	case kind == "BlobStorage":
		return []string{"dfs", "blob", "table"}
	case kind == "BlockBlobStorage":
		return []string{"dfs", "web", "blob"}
	case premium && kind == "StorageV2":
		return []string{"web", "blob"}
	case premium:
		return []string{"blob"}
	case kind == "StorageV2":
		return []string{"dfs", "web", "blob", "queue", "table", "file"}
	}
	return []string{"blob", "queue", "table", "file"}
}

// webZone is in the name of a static web site; Azure has some by region (recorded answers).
func webZone(region string) string {
	return cmp.Or(map[string]string{"eastus": "z13", "eastus2euap": "z3", "westus": "z22"}[region], "z1")
}

func showAccount(s *Server, e *entry, out object) {
	p, sku, region := out["properties"].(object), text(out, "sku", "name"), text(out, "location")
	ends := func(host string, services []string) object {
		out := object{}
		for _, service := range services {
			name := service
			if service == "web" {
				name = webZone(region) + ".web"
			}
			out[service] = "https://" + host + "." + name + "." + storageSuffix + "/"
		}
		return out
	}
	services := accountServices(text(out, "kind"), sku)
	p["primaryEndpoints"], p["primaryLocation"], p["statusOfPrimary"] = ends(e.id.name(), services), region, "available"
	p["creationTime"], p["privateEndpointConnections"] = azureTime(e.since), []any{}
	if pair := pairedRegions()[region]; pair != "" && (strings.Contains(sku, "_RAG") || strings.Contains(sku, "_G")) {
		p["secondaryLocation"], p["statusOfSecondary"] = pair, "available"
	}
	if strings.Contains(sku, "_RAG") { // files cannot be read there
		p["secondaryEndpoints"] = ends(e.id.name()+"-secondary", slices.DeleteFunc(services, func(s string) bool { return s == "file" }))
	}
	if x, made := e.extra.(*account); made {
		p["keyCreationTime"] = object{"key1": azureTime(x.made[0]), "key2": azureTime(x.made[1])}
	}
	s.showIdentity(out)
}

func (c *call) keyList(e *entry) object {
	list := []any{}
	for i, k := range c.s.keysOf(e) {
		list = append(list, object{"creationTime": azureTime(e.extra.(*account).made[i]), "keyName": "key" + strconv.Itoa(i+1), "value": k, "permissions": "FULL"})
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
	x := e.extra.(*account)
	x.turns[i]++
	x.made[i] = c.now
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
