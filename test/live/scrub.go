package live

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/azure/credential"
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
	// chosen are keys and values of tags that the run sent.
	chosen map[string]bool
	counts map[string]int
	// words are whole words to replace wherever they stand.
	words *regexp.Regexp
}

func newScrubber(groups []string, owner string, who credential.Credentials) *scrubber {
	c := &scrubber{groups: groups, values: map[string]string{}, chosen: map[string]bool{}, counts: map[string]int{}}
	var words []string
	add := func(kind, word string) {
		if word != "" {
			words = append(words, regexp.QuoteMeta(word))
			c.replace(kind+"%d", word)
		}
	}
	add("owner", owner)
	add("group", who.ResourceGroup)
	add("tenant", who.Tenant)
	// "Azure CLI, NAME" and the like.
	if _, name, ok := strings.Cut(who.Source, ", "); ok {
		add("person", strings.TrimPrefix(name, "service principal "))
	}
	c.words = regexp.MustCompile(`(?i)(^|[^\pL\pN])(` + strings.Join(append(words, `\x00`), "|") + `)($|[^\pL\pN])`)
	return c
}

// replace is the replacement of an original; form has its number.
func (c *scrubber) replace(form, original string) string {
	key := strings.ToLower(original)
	if c.values[key] == "" {
		c.counts[form]++
		c.values[key] = fmt.Sprintf(form, c.counts[form])
	}
	return c.values[key]
}

var (
	guidForm   = regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	mailForm   = regexp.MustCompile(`(?i)[\w.+#-]+@[\w-]+(\.[\w-]+)+`)
	ip4Form    = regexp.MustCompile(`\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b`)
	ip6Form    = regexp.MustCompile(`(?i)\b(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}\b`)
	macForm    = regexp.MustCompile(`(?i)\b(?:[0-9a-f]{2}[-:]){5}[0-9a-f]{2}\b`)
	domainForm = regexp.MustCompile(`[a-z0-9]{26}\.([a-z]+\.internal\.cloudapp\.net)`)
	hostForm   = regexp.MustCompile(`\b[a-z0-9-]+((?:\.z[0-9]+)?\.(?:blob|file|queue|table|dfs|vault)\.[a-z.]+\.net)`)
	clientForm = regexp.MustCompile(`(?i)\b(client|user|principal) '([^']+)'`)
	pathForm   = regexp.MustCompile(`(?i)/(resourceGroups|managementGroups)/([^/?"'\s,)]+)((?:/[^/?"'\s,)]+)*)`)
	queryForm  = regexp.MustCompile(`(https://[^\s"'?]+)\?([^\s"']+)`)
	sshForm    = regexp.MustCompile(`\b(ssh-[a-z0-9-]+|ecdsa-[a-z0-9-]+) AAAA[\w+/=]+( [\w@.-]+)?`)
	policyForm = regexp.MustCompile(`(?i)Policy identifiers:.*`)

	// base64Form is customData where another member has it, as the differences of a what-if.
	base64Form = regexp.MustCompile(`^[A-Za-z0-9+/]{200,}={0,2}$`)

	ownAddresses = netip.MustParsePrefix(addressSpace)
	k3sAddresses = netip.MustParsePrefix("10.42.0.0/15") // pods and Services of every k3s
	// personKeys are members that name who did something.
	personKeys = []string{"createdby", "lastmodifiedby", "displayname", "principalname", "userprincipalname", "mail", "email", "owner",
		"accountname"}
	// secretKeys are members that hold secrets whatever these look like.
	secretKeys = []string{"adminpassword", "accesssas", "protectedsettings", "secret", "clientsecret", "primarykey", "secondarykey",
		"additionalinfo", "keydata"}
)

// text replaces what is found in a text by its form.
func (c *scrubber) text(s string) string {
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
		return c.replace("account%d", name) + "." + rest
	})
	s = clientForm.ReplaceAllStringFunc(s, func(m string) string {
		parts := clientForm.FindStringSubmatch(m)
		return parts[1] + " '" + c.replace("person%d", parts[2]) + "'"
	})
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
	if slices.Contains(c.groups, strings.ToLower(parts[2])) || strings.HasPrefix(parts[2], "group") && c.known(parts[2]) {
		return id
	}
	out := "/" + parts[1] + "/" + c.replace("group%d", parts[2])
	segments := strings.Split(strings.TrimPrefix(parts[3], "/"), "/") // providers, NAMESPACE, TYPE, NAME, TYPE, NAME
	for n := range segments {
		if n >= 3 && n%2 == 1 && !strings.HasPrefix(segments[n], "00000000-") {
			segments[n] = c.replace("name%d", segments[n])
		}
	}
	if parts[3] != "" {
		out += "/" + strings.Join(segments, "/")
	}
	return out
}

func (c *scrubber) known(replacement string) bool {
	for _, v := range c.values {
		if v == replacement {
			return true
		}
	}
	return false
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
			return c.replace("person%d", x)
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
			case key == "tags" && isText && sent:
				c.chosen[k+"="+text] = true
				out[k] = c.text(text)
			case key == "tags" && isText && !c.chosen[k+"="+text] && k != timeTag && !strings.HasPrefix(k, ownTags):
				out[c.replace("tag%d", k)] = c.replace("value%d", text)
			default:
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
	i.URI = c.text(path)
	if values, err := url.ParseQuery(query); err == nil {
		for name := range values {
			values.Set(name, c.text(values.Get(name)))
			if slices.Contains([]string{"s", "h", "c", "t", "sig"}, name) { // signatures of operations
				values.Del(name)
			}
		}
		i.URI += "?" + values.Encode()
	}
	headers := map[string]string{}
	for name, v := range i.Headers {
		headers[name] = c.text(v)
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
			return text
		}
	}
}

// left is an error where a text still has something that is replaced. Short words are left
// to their whole-word form.
func (c *scrubber) left(what, text string) error {
	lower := strings.ToLower(text)
	for original, by := range c.values {
		if len(original) >= 8 && !strings.Contains(strings.ToLower(by), original) && strings.Contains(lower, original) {
			return fmt.Errorf("%s not written: what is replaced by %s is still in it", what, by)
		}
	}
	if m := c.words.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s not written: what is replaced by %s is still in it", what, c.values[strings.ToLower(m[2])])
	}
	return nil
}
