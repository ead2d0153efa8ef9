package live

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/redact"
)

const (
	removed       = "REMOVED"
	removedBase64 = "UkVNT1ZFRA==" // the same where Azure takes base64 only
)

// ownTags begin the keys of Ortet's own tags, some of which a cluster's server writes.
const ownTags = "ortet.io_"

// timeTag is what Azure itself puts on the members of Flexible scale sets.
const timeTag = "VirtualMachineProfileTimeCreated"

// A scrubber replaces what says whose subscription a run was in: the same value by the same
// replacement, so that a recording still fits together. What the run itself chose stays.
type scrubber struct {
	groups []string // the run's own, in lower case
	// values are originals, in lower case, with their replacements.
	values map[string]string
	// chosen are keys and values of tags that the run sent; others are those that Azure
	// answered first, which the run may send back.
	chosen, others map[string]bool
	counts         map[string]int
	// names are originals that are replaced wherever they stand as whole words, and words is
	// their form. common is what a recording has in any subscription.
	names, common, replacements map[string]bool
	fixed                       map[string]bool // names that are replaced though they may be common
	words                       *regexp.Regexp
}

// newScrubber knows the people and computers that a run belongs to.
func newScrubber(s *session) *scrubber {
	groups, _ := s.groups()
	c := &scrubber{groups: groups, values: map[string]string{}, chosen: map[string]bool{}, others: map[string]bool{},
		counts: map[string]int{}, names: map[string]bool{}, common: map[string]bool{},
		replacements: map[string]bool{"": true, "removed": true}}
	for _, grant := range recipe.Grants(poolName) { // a replay assigns these roles, which are the same in every subscription
		c.replacements[grant.Role.ID] = true
	}
	for _, word := range append(slices.Clone(everyone), s.region, machineSize, s.name, s.cluster) {
		c.common[strings.ToLower(word)] = true
	}
	for _, word := range append([]string{s.owner}, s.people...) {
		if !slices.Contains(everyone, strings.ToLower(word)) {
			c.name("person%d", word)
		}
	}
	c.name("group%d", s.who.ResourceGroup)
	c.name("tenant%d", s.who.Tenant)
	// "Azure CLI, NAME" and the like.
	if _, name, ok := strings.Cut(s.who.Source, ", "); ok {
		c.name("person%d", strings.TrimPrefix(name, "service principal "))
	}
	c.fixed = maps.Clone(c.names)
	c.compile()
	return c
}

// everyone are words that say nothing of whose computer it is, and the members of a recording.
var everyone = []string{"root", "ubuntu", "debian", "azureuser", "admin", "runner", "user", "unknown", "localhost", "ortet",
	"source", "session", "interactions", "method", "request", "response", "headers", "status"}

// name is replace of what is to be replaced wherever it stands as a whole word.
func (c *scrubber) name(form, original string) string {
	key := strings.ToLower(original)
	long := len(key) >= 4 || c.fixed == nil && key != ""
	if long && !c.replacements[key] && strings.ContainsFunc(key, unicode.IsLetter) {
		c.names[key] = true
	}
	return c.replace(form, original)
}

// rest are the replacements of what is still in a text, as in longer words, sorted.
func (c *scrubber) rest(text string) (all []string) {
	lower := strings.ToLower(text)
	for original, by := range c.values {
		common := c.common[original] && !c.fixed[original]
		if len(original) >= 8 && !common && !strings.Contains(strings.ToLower(by), original) && strings.Contains(lower, original) {
			all = append(all, by)
		}
	}
	slices.Sort(all)
	return all
}

// compile makes words of the names known by now.
func (c *scrubber) compile() {
	words := []string{`\x00`}
	for name := range c.names {
		if c.fixed[name] || !c.common[name] {
			words = append(words, regexp.QuoteMeta(name))
		}
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) // the longest first
	c.words = regexp.MustCompile(`(?i)(^|[^\pL\pN])(` + strings.Join(words, "|") + `)($|[^\pL\pN])`)
}

// replace is the replacement of an original; form has its number.
func (c *scrubber) replace(form, original string) string {
	key := strings.ToLower(original)
	if c.replacements[key] {
		return original
	}
	if c.values[key] == "" {
		c.counts[form]++
		c.values[key] = fmt.Sprintf(form, c.counts[form])
		c.replacements[strings.ToLower(c.values[key])] = true
	}
	return c.values[key]
}

var (
	guidForm   = regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	mailForm   = regexp.MustCompile(`(?i)[\w.+#-]+@[\w-]+(\.[\w-]+)+`)
	ip4Form    = regexp.MustCompile(`\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b`)
	ip6Form    = regexp.MustCompile(`(?i)\b(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}\b`)
	macForm    = regexp.MustCompile(`(?i)\b(?:[0-9a-f]{2}[-:]){5}[0-9a-f]{2}\b`)
	domainForm = regexp.MustCompile(`(?i)[a-z0-9]{26}\.([a-z]+\.internal\.cloudapp\.net)`)
	// hostForm begins with a name of the customer's, in domains of Azure's services and of tenants.
	hostForm = regexp.MustCompile(`(?i)\b([a-z0-9-]+)((?:\.[a-z0-9-]+)*\.(?:(?:blob|file|queue|table|dfs|web|vault|database|servicebus|` +
		`cloudapp|[a-z0-9-]+\.cloudapp)\.[a-z.]*(?:net|com|cn)|azurecr\.(?:io|us|cn)|` +
		`azmk8s\.io|azurewebsites\.net|azurefd\.net|onmicrosoft\.com))\b`)
	// nameForm is what Azure quotes, keyForm a member of personKeys in a text that is no JSON by itself.
	nameForm   = regexp.MustCompile(`(?i)\b(client|user|principal|account|resource ?group|subscription|tenant|host) '([^']+)()'`)
	keyForm    = regexp.MustCompile(`(?i)(["']?\b(?:` + strings.Join(personKeys, "|") + `)["']?\s*[:=]\s*["'])([^"'\\]+)(["'])`)
	homeForm   = regexp.MustCompile(`(?i)([/\\](?:home|Users)[/\\]+)([^/\\\s"':]+)()`)
	pathForm   = regexp.MustCompile(`(?i)/(resourceGroups|managementGroups)/([^/?"'\s,)]+)((?:/[^/?"'\s,)]+)*)`)
	queryForm  = regexp.MustCompile(`(?i)(https://[^\s"'?]+)\?([^\s"']+)`)
	sshForm    = regexp.MustCompile(`(?i)\b(ssh-[a-z0-9-]+|ecdsa-[a-z0-9-]+) AAAA[\w+/=]+( [^\s"',;]+)?`)
	pemForm    = regexp.MustCompile(`(?is)-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|$)`)
	policyForm = regexp.MustCompile(`(?im)Policy identifiers:.*|Reasons: .*?(See error details|$)`)

	// base64Form is customData where another member has it, as the differences of a what-if.
	base64Form = regexp.MustCompile(`^[A-Za-z0-9+/]{200,}={0,2}$`)

	ownAddresses = netip.MustParsePrefix(addressSpace)
	k3sAddresses = netip.MustParsePrefix("10.42.0.0/15") // pods and Services of every k3s
	// nameKinds are replacements by what nameForm begins with.
	nameKinds = map[string]string{"client": "person%d", "user": "person%d", "principal": "person%d", "account": "account%d",
		"resource group": "group%d", "resourcegroup": "group%d", "subscription": "name%d", "tenant": "tenant%d", "host": "name%d"}
	// personKeys are members that name who did something.
	personKeys = []string{"createdby", "lastmodifiedby", "displayname", "principalname", "userprincipalname", "mail", "email", "owner",
		"accountname"}
	// secretKeys are members that hold secrets whatever these look like.
	secretKeys = []string{"adminpassword", "accesssas", "protectedsettings", "secret", "clientsecret", "primarykey", "secondarykey",
		"additionalinfo", "keydata"}
)

// text replaces what is found in a text, and in what is encoded in it, which goes first: a form
// may begin in the middle of an escape.
func (c *scrubber) text(s string) string { return c.plain(c.decoded(s, 3)) }

// plain replaces what is found in a text by its form.
func (c *scrubber) plain(s string) string {
	s = queryForm.ReplaceAllStringFunc(s, func(u string) string {
		at, query, _ := strings.Cut(u, "?")
		values, _ := url.ParseQuery(query)
		if v := values.Get("api-version"); v != "" { // what else stands there may be signed
			return at + "?api-version=" + v
		}
		return at
	})
	s = sshForm.ReplaceAllString(s, "$1 "+removed)
	s = policyForm.ReplaceAllString(s, removed)
	s = pemForm.ReplaceAllString(s, removed)
	s = guidForm.ReplaceAllStringFunc(s, func(id string) string { return c.replace("00000000-0000-0000-0000-%012d", id) })
	s = mailForm.ReplaceAllStringFunc(s, func(m string) string { return c.replace("person%d@example.com", m) })
	s = macForm.ReplaceAllStringFunc(s, func(m string) string { return c.replace("00-00-5E-00-53-%02X", m) })
	for _, form := range []*regexp.Regexp{ip4Form, ip6Form} {
		s = form.ReplaceAllStringFunc(s, func(a string) string {
			addr, err := netip.ParseAddr(a)
			switch {
			case err != nil || ownAddresses.Contains(addr) || k3sAddresses.Contains(addr) || addr.IsUnspecified() || addr.IsLoopback():
				return a
			case addr.Is4():
				return c.replace("192.0.2.%d", a)
			}
			return c.replace("2001:db8::%x", a)
		})
	}
	s = domainForm.ReplaceAllString(s, "example.$1")
	s = hostForm.ReplaceAllStringFunc(s, func(h string) string {
		name, rest, _ := strings.Cut(h, ".")
		return c.name("account%d", name) + "." + rest
	})
	for _, form := range []*regexp.Regexp{nameForm, keyForm, homeForm} {
		s = form.ReplaceAllStringFunc(s, func(m string) string {
			parts := form.FindStringSubmatch(m)
			if c.own(parts[2]) || guidForm.MatchString(parts[2]) || mailForm.MatchString(parts[2]) {
				return m
			}
			if form == nameForm {
				return parts[1] + " '" + c.name(nameKinds[strings.ToLower(parts[1])], parts[2]) + "'"
			}
			return parts[1] + c.name("person%d", parts[2]) + parts[3]
		})
	}
	s = pathForm.ReplaceAllStringFunc(s, c.foreign)
	for range 2 { // words that share a blank
		s = c.words.ReplaceAllStringFunc(s, func(m string) string {
			parts := c.words.FindStringSubmatch(m)
			return parts[1] + c.values[strings.ToLower(parts[2])] + parts[3]
		})
	}
	return s
}

// foreign replaces the names in an id that lies outside of the run's group.
func (c *scrubber) foreign(id string) string {
	parts := pathForm.FindStringSubmatch(id)
	if c.own(parts[2]) {
		return id
	}
	out := "/" + parts[1] + "/" + c.name("group%d", parts[2])
	segments := strings.Split(strings.TrimPrefix(parts[3], "/"), "/") // providers, NAMESPACE, TYPE, NAME, TYPE, NAME
	for n := range segments {
		if n >= 3 && n%2 == 1 && !strings.HasPrefix(segments[n], "00000000-") {
			segments[n] = c.name("name%d", segments[n])
		}
	}
	if parts[3] != "" {
		out += "/" + strings.Join(segments, "/")
	}
	return out
}

// own reports whether a name is a group of the run, common, or a replacement.
func (c *scrubber) own(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains(c.groups, name) || c.replacements[name]
}

// body replaces in a JSON value. Tags that the run did not send are somebody's policy's.
func (c *scrubber) body(key string, v any, sent bool) any {
	switch x := v.(type) {
	case string:
		switch {
		case slices.Contains([]string{"customdata", "userdata"}, strings.ToLower(key)), base64Form.MatchString(x):
			return removedBase64
		case key == "contentVersion": // of a template, and of an address's form
			return x
		case slices.Contains(secretKeys, strings.ToLower(key)):
			return removed
		case slices.Contains(personKeys, strings.ToLower(key)) && !guidForm.MatchString(x) && !mailForm.MatchString(x):
			if c.own(x) {
				return x
			}
			return c.name("person%d", x)
		}
		if sent && !strings.Contains(x, "/") {
			c.common[strings.ToLower(x)] = true
		}
		return c.text(x)
	case []any:
		out := make([]any, len(x))
		for n := range x {
			out[n] = c.body(key, x[n], sent)
		}
		return out
	case map[string]any:
		if slices.Contains(secretKeys, strings.ToLower(key)) {
			return removed
		}
		out := make(map[string]any, len(x))
		for k, e := range x {
			text, isText := e.(string)
			switch {
			case key == "tags" && isText && sent && !c.others[k+"="+text]:
				c.chosen[k+"="+text] = true
				out[k] = c.text(text)
			case key == "tags" && isText && !c.chosen[k+"="+text] && k != timeTag && !strings.HasPrefix(k, ownTags):
				c.others[k+"="+text] = true
				out[c.name("tag%d", k)] = c.name("value%d", text)
			case key == "tags":
				out[c.text(k)] = c.body(k, e, sent)
			default:
				c.common[strings.ToLower(k)] = true
				out[c.text(k)] = c.body(k, e, sent)
			}
		}
		return out
	}
	return v
}

func (c *scrubber) interaction(i interaction) interaction {
	// What stands behind a path is api-version and filters of the client's own.
	path, query, _ := strings.Cut(i.URI, "?")
	i.URI = c.secrets(c.text(path))
	if values, err := url.ParseQuery(query); err == nil {
		for name := range values {
			values.Set(name, c.secrets(c.text(values.Get(name))))
			if slices.Contains([]string{"s", "h", "c", "t", "sig"}, name) { // signatures of operations
				values.Del(name)
			}
		}
		i.URI += "?" + values.Encode()
	}
	headers := map[string]string{}
	for name, v := range i.Headers {
		headers[name] = c.secrets(c.text(v))
	}
	i.Headers = headers
	i.Request, i.Response = c.found(c.body("", i.Request, true)), c.found(c.body("", i.Response, false))
	return i
}

// found removes secrets from a body by their form.
func (c *scrubber) found(body any) any {
	text, err := json.MarshalIndent(body, "", " ")
	if err != nil || body == nil {
		return nil
	}
	clean := c.secrets(string(text))
	if clean == string(text) {
		return body
	}
	var out any
	if json.Unmarshal([]byte(clean), &out) != nil {
		return removed
	}
	return out
}

// secrets removes secrets from a text by their form.
func (c *scrubber) secrets(text string) string {
	for {
		hits := redact.Find(redact.Piece{Data: []byte(text), Whole: true})
		slices.SortFunc(hits, func(a, b redact.Hit) int { return b.From - a.From })
		before, end := text, len(text)
		for _, h := range hits {
			if h.To <= end && text[h.From:h.To] != removed { // one that another covers is gone with it
				text, end = text[:h.From]+removed+text[h.To:], h.From
			}
		}
		if text == before {
			break
		}
	}
	// Some rules find the first of a line alone.
	lines := strings.Split(text, "\n")
	for n, line := range lines {
		if before, after, ok := strings.Cut(line, removed); ok {
			lines[n] = before + removed + c.secrets(after)
		}
	}
	return strings.Join(lines, "\n")
}
