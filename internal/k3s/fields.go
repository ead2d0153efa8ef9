package k3s

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"path"
	"regexp"
	"strings"
)

var secretOption = regexp.MustCompile(`(?i)secret|token|password|passwd|credential|auth|key`)

// Fields returns the set fields of a cluster.yaml by their paths, such as
// "spec.pools[agents].labels.tier". A list of values is one field, in JSON. What may be a
// secret, the query of a URL or an option of k3s, is a digest: SecretPrefix and 16 digits.
func (c *Cluster) Fields() map[string]string {
	text, _ := json.Marshal(c) // made of YAML, so it is JSON
	var tree any
	_ = json.Unmarshal(text, &tree)
	all := map[string]string{}
	addFields(all, "", tree)
	return all
}

// FileOf is the name of the file that a URL ends with.
func FileOf(url string) string {
	url, _, _ = strings.Cut(url, "?")
	return path.Base(url)
}

// SecretPrefix begins the digest of what may be a secret in Fields.
const SecretPrefix = "secret:"

func addFields(all map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, one := range v {
			addFields(all, strings.TrimPrefix(path+"."+key, "."), one)
		}
		return
	case []any:
		if len(v) > 0 {
			if _, objects := v[0].(map[string]any); objects {
				for _, one := range v {
					o, _ := one.(map[string]any)
					name, named := o["name"].(string)
					if url, file := o["url"].(string); file && !named {
						name = FileOf(url)
					}
					if to, rule := o["to"].(string); rule { // whose name is unique per to
						name = to + "/" + name
					}
					addFields(all, path+"["+name+"]", one)
				}
				return
			}
		}
	}
	text, isText := v.(string)
	if !isText {
		data, _ := json.Marshal(v)
		text = string(data)
	}
	head, option, isOption := strings.Cut(path, ".k3s.")
	isOption = isOption && (head == "spec.server" || strings.HasPrefix(head, "spec.pools["))
	at, query, hasQuery := strings.Cut(text, "?")
	switch {
	case isOption && (secretOption.MatchString(option) || secretOption.MatchString(text)):
		text = secret(text)
	case hasQuery && strings.HasSuffix(path, ".url"):
		text = at + "?" + secret(query)
	}
	all[path] = text
}

func secret(text string) string {
	sum := sha256.Sum256([]byte(text))
	return SecretPrefix + hex.EncodeToString(sum[:])[:16]
}

// Fingerprint names a public key, a line of authorized_keys, as ssh-keygen -l does; "" is
// no key.
func Fingerprint(line string) string {
	parts := strings.Fields(line)
	if len(parts) < 2 {
		return ""
	}
	blob, _ := base64.StdEncoding.DecodeString(parts[1]) // what is none has a digest too
	sum := sha256.Sum256(blob)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}
